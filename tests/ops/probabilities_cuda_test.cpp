#include <cmath>

#include "core/copy.h"
#include "ops/attention/probabilities.h"
#include "support/catch.h"
#include "support/doubles.h"
#include "support/gpu.h"
#include "support/op_tests.h"
#include "support/tolerance.h"

using namespace xtrain;

namespace {

constexpr int64_t kBatch = 3, kHeads = 2, kQueries = 6;

// Sequences of different length in a cache of `keys` places: one whole, one of half the length with
// a document that begins in it, one whose queries see nothing.
AttentionMask ragged_mask(const Context& ctx, int64_t keys, bool causal, int64_t window) {
  const int all = static_cast<int>(keys), half = all / 2;
  AttentionMask mask;
  mask.causal = causal;
  mask.window = window;
  mask.position_base = from_host(ctx, std::vector<int>{all - 6, half - 3, 0}, {kBatch});
  mask.key_length = from_host(ctx, std::vector<int>{all, half, 0}, {kBatch});
  std::vector<int> starts(kBatch * kQueries, 0);
  for (int t = 0; t < kQueries; ++t) starts[kQueries + t] = t < 4 ? half / 3 : half - 1;
  mask.document_start = from_host(ctx, starts, {kBatch, kQueries});
  return mask;
}

struct Values {
  std::vector<double> p, ds;
};

// Scores and upstream gradients are rounded to `rounded` first.
Values run_softmax(const Context& ctx, int64_t keys, bool causal, int64_t window, Dtype dtype,
                   Dtype rounded) {
  const Shape shape{kBatch, kHeads, kQueries, keys};
  const auto uniform = [&](uint64_t site) {
    const RandomStream stream = random_stream(4, 0, site);
    std::vector<double> values(numel_of(shape));
    for (size_t i = 0; i < values.size(); ++i) values[i] = 6.0 * stream.uniform(0, i) - 3.0;
    return cast(ctx, cast(ctx, from_host(ctx, values, shape), rounded), dtype);
  };
  Tape tape(ctx);
  const Var s = tape.leaf(uniform(0));
  const Var p = masked_softmax(ctx, s, 0.7, ragged_mask(ctx, keys, causal, window));
  const Tensor dp = uniform(1);
  tape.backward(std::span(&p, 1), std::span(&dp, 1));
  return {as_doubles(ctx, p.value), as_doubles(ctx, tape.grad(s))};
}

}  // namespace

TEST_CASE("masked softmax on the GPU equals the CPU's and hides what is masked", "[cuda]") {
  for (int64_t keys : {7, 64, 1000, 1500, 20000}) {
    for (bool causal : {true, false}) {
      for (int64_t window : {0, 5}) {
        for (Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
          INFO(keys << " keys, causal " << causal << ", window " << window << ", " << dtype);
          const Values oracle = run_softmax(cpu_context(), keys, causal, window, Dtype::f64, dtype);
          const Values got = run_softmax(test_cuda_context(), keys, causal, window, dtype, dtype);
          const double limit = tolerance(dtype, keys);
          CHECK(relative_difference(got.p, oracle.p) <= limit);
          CHECK(relative_difference(got.ds, oracle.ds) <= limit);
          bool hidden = true;
          for (size_t i = 0; i < got.p.size(); ++i) {
            if (oracle.p[i] == 0.0) hidden = hidden && got.p[i] == 0.0 && got.ds[i] == 0.0;
          }
          CHECK(hidden);
        }
      }
    }
  }
}

TEST_CASE("masked softmax on the GPU reads no score that is masked", "[cuda]") {
  const Context& ctx = test_cuda_context();
  for (int64_t keys : {11, 64, 2000}) {
    std::vector<float> scores(2 * keys, 0.25f);
    scores[keys - 1] = std::nanf("");  // the last key is in the first query's future
    const Tensor s = from_host(ctx, scores, {1, 1, 2, keys});
    const AttentionMask mask = causal_mask(ctx, 1, 2, keys);
    const std::vector<float> p = to_host<float>(ctx, masked_softmax(ctx, s, 1.0, mask).value);
    CHECK(p[keys - 1] == 0.0f);
    const double share = 1.0 / static_cast<double>(keys - 1);
    CHECK(std::abs(p[0] - share) <= share * tolerance(Dtype::f32, keys));
  }
}

TEST_CASE("dropout of probabilities on the GPU drops what the CPU drops", "[cuda]") {
  for (int64_t keys : {5, 8, 1023, 1024}) {
    for (Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
      INFO(keys << " keys in " << dtype);
      const auto dropped = [&](Context ctx) {
        ctx.training = true;
        ctx.random.seed = 11;
        Tensor step = from_host(ctx, std::vector<int64_t>{9}, {1});
        Tensor first = from_host(ctx, std::vector<int64_t>{1234567}, {1});
        ctx.random.step = step.data<int64_t>();
        ctx.random.first_sequence = first.data<int64_t>();
        Tensor p = empty(ctx, {2, 3, 4, keys}, dtype);
        fill(ctx, p, 0.3);
        return as_doubles(ctx, probability_dropout(ctx, p, Dropout{0.25, 3}).value);
      };
      CHECK(dropped(test_cuda_context()) == dropped(cpu_context()));
    }
  }
}
