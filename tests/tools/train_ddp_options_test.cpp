#include "tools/train_ddp_options.h"

#include "support/catch.h"

using namespace xtrain;

namespace {

void check_options(const ParallelChoices& choices, bool gpu, bool one_host, bool zero, bool overlap,
                   int64_t bucket_mib) {
  INFO((gpu ? "GPUs" : "CPUs") << (one_host ? " of one host" : " of several"));
  const DataParallelOptions options = parallel_options(choices, gpu, one_host);
  CHECK(options.zero == zero);
  CHECK(options.overlap == overlap);
  CHECK(options.bucket_bytes == bucket_mib << 20);
}

}  // namespace

TEST_CASE("where gradients travel and what is shared out, unless told otherwise", "[tools]") {
  check_options({}, true, true, true, false, 128);
  check_options({}, true, false, false, true, 25);
  check_options({}, false, true, false, true, 1);
  check_options({}, false, false, false, true, 1);
}

TEST_CASE("the size of buckets on GPUs follows the way of the gradients", "[tools]") {
  for (bool one_host : {true, false}) {
    for (bool zero : {true, false}) {
      check_options({.zero = zero, .overlap = true}, true, one_host, zero, true, 25);
      check_options({.zero = zero, .overlap = false}, true, one_host, zero, false, 128);
      check_options({.zero = zero, .overlap = false}, false, one_host, zero, false, 1);
      check_options({.zero = zero, .overlap = true, .bucket_mb = 3.0}, true, one_host, zero, true,
                    3);
    }
  }
}

TEST_CASE("NCCL gets more blocks behind backward, within what it may have", "[tools]") {
  CHECK(nccl_min_ctas(true, std::nullopt) == std::nullopt);
  CHECK(nccl_min_ctas(true, 8) == std::nullopt);
  CHECK(nccl_min_ctas(false, std::nullopt) == 32);
  CHECK(nccl_min_ctas(false, 8) == 8);
  CHECK(nccl_min_ctas(false, 64) == 32);
}
