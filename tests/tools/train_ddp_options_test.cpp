#include "tools/train_ddp_options.h"

#include <CLI/CLI.hpp>

#include "support/catch.h"

using namespace xtrain;

namespace {

// What these arguments choose: zero, overlap, MiB of a bucket.
void check_choice(const std::string& arguments, bool gpu, bool one_host, bool zero, bool overlap,
                  int64_t bucket_mib) {
  INFO(arguments << (gpu ? ", GPUs" : ", CPUs") << (one_host ? " of one host" : " of several"));
  CLI::App app;
  const TrainDdpOptions options(app);
  app.parse(arguments);
  const DataParallelOptions chosen = options.parallel(gpu, one_host);
  CHECK(chosen.zero == zero);
  CHECK(chosen.overlap == overlap);
  CHECK(chosen.bucket_bytes == bucket_mib << 20);
}

}  // namespace

TEST_CASE("where gradients travel and what is shared out, unless told otherwise", "[tools]") {
  check_choice("", true, true, true, false, 128);
  check_choice("", true, false, false, true, 25);
  check_choice("", false, true, false, true, 1);
  check_choice("", false, false, false, true, 1);
}

TEST_CASE("the size of buckets on GPUs follows the way of the gradients", "[tools]") {
  for (bool one_host : {true, false}) {
    check_choice("--overlap --no-zero", true, one_host, false, true, 25);
    check_choice("--no-overlap --zero", true, one_host, true, false, 128);
    check_choice("--no-overlap --zero", false, one_host, true, false, 1);
    check_choice("--overlap --zero --bucket-mb 3", true, one_host, true, true, 3);
    check_choice("--no-overlap --no-zero --bucket-mb 3", true, one_host, false, false, 3);
  }
}

TEST_CASE("of two choices the last one counts", "[tools]") {
  check_choice("--zero --no-zero --no-overlap --overlap", true, true, false, true, 25);
  check_choice("--no-zero --zero --overlap --no-overlap", true, false, true, false, 128);
}

TEST_CASE("NCCL gets more blocks behind backward, within what it may have", "[tools]") {
  const auto fewest = [](const std::string& arguments, bool overlap) {
    CLI::App app;
    const TrainDdpOptions options(app);
    app.parse(arguments);
    return options.nccl_min_ctas(overlap);
  };
  CHECK(fewest("", true) == std::nullopt);
  CHECK(fewest("", false) == 32);
  CHECK(fewest("--nccl-max-ctas 8", false) == 8);
  CHECK(fewest("--nccl-max-ctas 64", false) == 32);
  CHECK(fewest("--nccl-max-ctas 8", true) == std::nullopt);
}
