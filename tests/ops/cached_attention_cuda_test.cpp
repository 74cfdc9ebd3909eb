#include "core/error.h"
#include "ops/cached_attention_checks.h"
#include "support/catch.h"
#include "support/gpu.h"
#include "support/tolerance.h"

using namespace xtrain;

namespace {

std::vector<CachedExample> examples(Dtype dtype) {
  const int64_t pack = 16 / size_of(dtype);
  std::vector<CachedExample> all;
  for (const int64_t lanes : {4, 8, 16, 32}) {
    const int64_t D = lanes * pack;
    all.push_back({2, 2, D, 70, false, true});
    all.push_back({2, 1, D, 300, true, true});
    all.push_back({6, 2, D, 1100, true, true, RopePairing::adjacent});
    all.push_back({8, 1, D, 700, false, false});
  }
  all.push_back({3, 3, 3 * pack, 70, true, false});   // heads that the kernel does not have
  all.push_back({9, 1, 4 * pack, 70, false, false});  // and groups
  all.push_back({2, 1, 8 * pack, 200, false, false, RopePairing::halves, 30.0});
  return all;
}

}  // namespace

// Each query's weights add up to 1, so errors are those of a few roundings of the values, and of
// the scores, whose size the bound gives.
TEST_CASE("cached attention on the GPU is right", "[cuda]") {
  const Context cpu = cpu_context(1);
  for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    for (const CachedExample& e : examples(dtype)) {
      INFO(dtype << ", " << e.heads << " on " << e.kv_heads << " heads of " << e.head_dim
                 << ", capacity " << e.capacity << (e.normed ? ", normed" : "")
                 << (e.turned ? ", turned" : ""));
      const CachedResult oracle = run_cached(cpu, e, cached_attention_composed, Dtype::f64, dtype);
      const CachedResult got = run_cached(test_cuda_context(), e, cached_attention, dtype, dtype);
      const int64_t terms = e.capacity * e.head_dim;
      CHECK(relative_difference(got.keys, oracle.keys) <= tolerance(dtype, e.head_dim));
      CHECK(relative_difference(got.values, oracle.values) == 0.0);
      CHECK(relative_difference(got.o, oracle.o) <= tolerance(dtype, terms));
      const CachedResult again = run_cached(test_cuda_context(), e, cached_attention, dtype, dtype);
      CHECK(again.o == got.o);
    }
  }
}
