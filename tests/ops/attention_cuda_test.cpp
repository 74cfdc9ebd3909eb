// Flash attention on the GPU against the CPU's oracle in f64, against composed attention on the
// GPU, and against itself.

#include <algorithm>
#include <cmath>

#include "ops/attention_examples_cuda.h"
#include "support/catch.h"
#include "support/gpu.h"
#include "support/op_tests.h"
#include "support/tolerance.h"

using namespace xtrain;

namespace {

void check_example(const Example& e) {
  const Context cpu = cpu_context(4);
  const Inputs in = random_inputs(e);
  const Results oracle = run(cpu, in, options_of(cpu, e), AttentionKind::flash);
  for (Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    INFO(dtype << ": " << e);
    const Results flash = run_on_gpu(e, in, dtype, AttentionKind::flash);
    // The error of a score grows with it, and that of its exponential is as large.
    const double terms = static_cast<double>(e.reduction()) * e.magnitude * e.magnitude;
    check_close(flash, oracle, tolerance(dtype, static_cast<int64_t>(terms)));
    if (e.magnitude > 1.0) continue;
    check_close(flash, run_on_gpu(e, in, dtype, AttentionKind::composed), twin_tolerance(dtype));
  }
}

// The choice falls on these kernels, and the op computes what they compute.
template <class T>
void check_runs(const Context& ctx, const Inputs& in, const Example& e, FlashKernel forward,
                FlashKernel backward) {
  INFO(dtype_of<T> << ": " << e);
  const AttentionOptions options = options_of(ctx, e);
  const TrainingStep training(ctx);
  Calls<T> calls(training.ctx, in, options);
  CHECK(flash_kernel(Cuda{ctx}, calls.forward) == forward);
  CHECK(flash_kernel(Cuda{ctx}, calls.backward) == backward);
  CHECK(run(ctx, in, options, AttentionKind::flash) == calls.run(ctx, forward, backward));
}

}  // namespace

TEST_CASE("flash attention on the GPU is right for every head_dim and around tiles", "[cuda]") {
  for (int64_t head_dim : {1, 8, 16, 20, 32, 64, 80, 96, 128, 192, 256}) {
    for (int64_t length : {7, 63, 64, 65, 129}) {
      check_example({.queries = length, .keys = length, .head_dim = head_dim});
    }
  }
}

TEST_CASE("flash attention on the GPU of a single key gives its value", "[cuda]") {
  const Context& ctx = test_cuda_context();
  for (int64_t head_dim : {1, 8, 16, 20, 32, 64, 80, 96, 128, 192, 256}) {
    const Example e{.heads = 2, .kv_heads = 2, .head_dim = head_dim};
    const Inputs in = random_inputs(e);
    for (Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
      INFO(dtype << ", head_dim " << head_dim);
      const Results got = run(ctx, on_gpu(in, dtype), options_of(ctx, e), AttentionKind::flash);
      CHECK(got.o == as_doubles(cpu_context(1), in.v));
      const std::vector<double> dy = as_doubles(cpu_context(1), in.dy);
      CHECK(relative_difference(got.dv, dy) <= tolerance(dtype));
      const auto vanishes = [&](double x) { return std::abs(x) <= tolerance(dtype, head_dim); };
      CHECK(std::all_of(got.dq.begin(), got.dq.end(), vanishes));
      CHECK(std::all_of(got.dk.begin(), got.dk.end(), vanishes));
    }
  }
}

TEST_CASE("flash attention on the GPU is right for every mask, group and with dropout", "[cuda]") {
  for (int64_t head_dim : {20, 64, 128}) {
    for (Example e : mask_examples(head_dim)) {
      for (int64_t group : {1, 4, 8}) {
        e.kv_heads = group == 8 ? 1 : 2;
        e.heads = group * e.kv_heads;
        check_example(e);
        if (group != 4) continue;
        e.dropout = 0.3;
        check_example(e);
        e.dropout = 0.0;
      }
    }
  }
}

TEST_CASE("flash attention on the GPU is right for large scores", "[cuda]") {
  for (int64_t head_dim : {16, 64, 128}) {
    check_example({.queries = 130, .keys = 130, .head_dim = head_dim, .magnitude = 10.0});
  }
}

TEST_CASE("flash attention on the GPU reads and keeps nothing but its inputs", "[cuda]") {
  const Context& ctx = test_cuda_context();
  const auto check = [&](Dtype dtype, int64_t head_dim, int64_t queries) {
    const int64_t keys = queries + 41, unseen = keys / 2;
    Example e{.queries = queries, .keys = keys, .heads = 4, .kv_heads = 2, .head_dim = head_dim};
    e.key_length = {static_cast<int32_t>(keys), static_cast<int32_t>(keys - unseen)};
    INFO(dtype << ": " << e);
    const Inputs in = random_inputs_on_gpu(e, dtype);
    const AttentionOptions options = options_of(ctx, e);
    const Results expected = run(ctx, in, options, AttentionKind::flash);
    const Inputs poisoned{surrounded_by_nan(ctx, in.q), surrounded_by_nan(ctx, in.k),
                          surrounded_by_nan(ctx, in.v), surrounded_by_nan(ctx, in.dy)};
    for (Tensor x : {poisoned.k, poisoned.v}) {
      fill(ctx, x.slice(0, 1, 1).slice(1, keys - unseen, unseen), kNaN);
    }
    poison_pool(ctx);
    const Results got = run(ctx, poisoned, options, AttentionKind::flash);
    CHECK(got == expected);
    CHECK(std::all_of(got.dk.end() - unseen * 2 * head_dim, got.dk.end(),
                      [](double x) { return x == 0.0; }));
  };
  for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    for (int64_t head_dim : {7, 20, 64, 128}) check(dtype, head_dim, 90);
    for (int64_t queries : {1, 3, 63, 65, 127, 129, 130, 257}) check(dtype, 64, queries);
  }
}

TEST_CASE("flash attention on the GPU gives the same bits every time", "[cuda]") {
  for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    for (int64_t head_dim : {20, 64, 128}) {
      INFO(dtype << ", head_dim " << head_dim);
      Example e{.queries = 300, .keys = 300, .heads = 8, .kv_heads = 2, .head_dim = head_dim};
      e.dropout = 0.1;
      const Context& ctx = test_cuda_context();
      const Inputs in = random_inputs_on_gpu(e, dtype);
      const AttentionOptions options = options_of(ctx, e);
      const Results first = run(ctx, in, options, AttentionKind::flash);
      int different = 0;
      for (int i = 0; i < 20; ++i)
        different += run(ctx, in, options, AttentionKind::flash) != first;
      CHECK(different == 0);
    }
  }
}

TEST_CASE("flash attention on the GPU does not look at later tokens", "[cuda]") {
  const Context& ctx = test_cuda_context();
  for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    for (int64_t head_dim : {16, 64}) {
      Example e{.queries = 130, .keys = 130, .heads = 2, .kv_heads = 2, .head_dim = head_dim};
      const AttentionOptions options = options_of(ctx, e);
      const Inputs in = random_inputs_on_gpu(e, dtype);
      const std::vector<double> before = run(ctx, in, options, AttentionKind::flash).o;
      for (int64_t kept : {1, 15, 63, 64, 65, 129}) {
        INFO(dtype << ", head_dim " << head_dim << ", the first " << kept << " tokens");
        const Inputs changed = random_inputs_on_gpu(e, dtype);
        for (Tensor x : {changed.q, changed.k, changed.v}) {
          fill(ctx, x.slice(0, 0, 1).slice(1, kept, e.queries - kept), -3.0);
          fill(ctx, x.slice(0, 1, 1), 5.0);
        }
        const std::vector<double> after = run(ctx, changed, options, AttentionKind::flash).o;
        const int64_t same = kept * e.heads * head_dim;
        CHECK(std::equal(before.begin(), before.begin() + same, after.begin()));
        CHECK(before[same] != after[same]);
      }
    }
  }
}

TEST_CASE("flash attention on the GPU computes the same gradient whatever else is wanted",
          "[cuda]") {
  const Context& ctx = test_cuda_context();
  Example e{.queries = 70, .keys = 70, .heads = 4, .kv_heads = 2};
  for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const Inputs in = random_inputs_on_gpu(e, dtype);
    const AttentionOptions options = options_of(ctx, e);
    const Results all = run(ctx, in, options, AttentionKind::flash);
    const std::vector<double> expected[] = {all.dq, all.dk, all.dv};
    for (int wanted = 0; wanted < 3; ++wanted) {
      INFO(dtype << ", input " << wanted);
      Tape tape(ctx);
      Var x[] = {in.q, in.k, in.v};
      x[wanted] = tape.leaf(x[wanted].value);
      const Var o = attention_flash(ctx, x[0], x[1], x[2], options);
      tape.backward(std::span(&o, 1), std::span(&in.dy, 1));
      CHECK(as_doubles(ctx, tape.grad(x[wanted])) == expected[wanted]);
    }
  }
}

TEST_CASE("flash attention on the GPU runs on the tensor cores where they fit, else without",
          "[cuda]") {
  const Context& ctx = test_cuda_context();
  constexpr FlashKernel kFfma = FlashKernel::ffma;
  for (int64_t head_dim : {20, 32, 64, 80, 96, 128, 192, 256}) {
    const bool fits = head_dim % 32 == 0 && head_dim != 192;
    const Example e{.queries = 70, .keys = 70, .head_dim = head_dim};
    check_runs<float>(ctx, random_inputs_on_gpu(e, Dtype::f32), e, kFfma, kFfma);
    check_runs<BFloat16>(ctx, random_inputs_on_gpu(e, Dtype::bf16), e, fits ? best_kernel() : kFfma,
                         fits ? best_kernel() : kFfma);
  }
  // The kernels by wgmma draw no dropout, those by mma.sync do.
  for (int64_t head_dim : {20, 32, 64, 96, 128, 256}) {
    const FlashKernel kernel = head_dim == 20 ? kFfma : FlashKernel::mma;
    const Example e{.queries = 70, .keys = 70, .head_dim = head_dim, .dropout = 0.3};
    check_runs<BFloat16>(ctx, random_inputs_on_gpu(e, Dtype::bf16), e, kernel, kernel);
  }
  const Example e{.queries = 70, .keys = 70};
  Inputs unaligned = random_inputs_on_gpu(e, Dtype::bf16);
  Tensor wide = empty(ctx, {2, 70, 1, 65}, Dtype::bf16);
  const Tensor k = wide.slice(3, 1, 64);
  copy(ctx, unaligned.k, k);
  unaligned.k = k;
  check_runs<BFloat16>(ctx, unaligned, e, kFfma, kFfma);
}

TEST_CASE("flash attention on the GPU of few queries over many keys is right", "[cuda]") {
  for (int64_t head_dim : {8, 20, 32, 64, 128, 256}) {
    for (int64_t group : {1, 2, 4, 8}) {
      for (int64_t keys : {1, 127, 3000}) {
        Example e{.queries = 1, .keys = keys, .heads = 2 * group, .kv_heads = 2};
        e.head_dim = head_dim;
        check_example(e);
      }
    }
    // Caches that are longer than what they hold, and several queries.
    for (int64_t queries : {1, 2, 4}) {
      Example e{.batch = 3, .queries = queries, .keys = 2000, .heads = 4, .kv_heads = 2};
      e.head_dim = head_dim;
      e.position_base = {static_cast<int32_t>(2000 - queries), 700, 0};
      e.key_length = {2000, static_cast<int32_t>(700 + queries), static_cast<int32_t>(queries)};
      check_example(e);
      e.window = 100;
      check_example(e);
      e.causal = false;
      e.key_length = {1999, 0, 1};
      check_example(e);
    }
  }
}

TEST_CASE("flash attention on the GPU splits the keys of few queries over blocks", "[cuda]") {
  const Context& ctx = test_cuda_context();
  const auto check_splits = [&](const Example& e, bool f32, bool bf16) {
    const FlashKernel split = FlashKernel::split_keys, ffma = FlashKernel::ffma;
    const bool fits = e.head_dim % 32 == 0 && e.head_dim != 192;
    const FlashKernel best = fits ? best_kernel() : ffma;
    check_runs<float>(ctx, random_inputs_on_gpu(e, Dtype::f32), e, f32 ? split : ffma, ffma);
    check_runs<BFloat16>(ctx, random_inputs_on_gpu(e, Dtype::bf16), e, bf16 ? split : best, best);
  };
  check_splits({.keys = 1000, .heads = 16, .kv_heads = 2, .head_dim = 128}, true, true);
  check_splits({.keys = 1000, .heads = 18, .kv_heads = 2, .head_dim = 128}, false, false);
  check_splits({.queries = 4, .keys = 1000, .head_dim = 64}, true, true);
  check_splits({.queries = 5, .keys = 1000, .head_dim = 64}, false, false);
  check_splits({.keys = 1000, .head_dim = 256}, false, true);
  check_splits({.keys = 1000, .head_dim = 80}, false, false);
}

TEST_CASE("flash attention on the GPU never reads a cache behind its length", "[cuda]") {
  const Context& ctx = test_cuda_context();
  Example e{.keys = 1000, .heads = 4, .kv_heads = 2, .head_dim = 128};
  e.position_base = {300, 41};
  e.key_length = {301, 42};
  for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const Inputs in = random_inputs_on_gpu(e, dtype);
    const AttentionOptions options = options_of(ctx, e);
    const auto output = [&] { return run(ctx, in, options, AttentionKind::flash).o; };
    const std::vector<double> expected = output();
    for (Tensor x : {in.k, in.v}) {
      fill(ctx, x.slice(0, 0, 1).slice(1, 301, 699), kNaN);
      fill(ctx, x.slice(0, 1, 1).slice(1, 42, 958), kNaN);
    }
    poison_pool(ctx);
    CHECK(output() == expected);
  }
}

TEST_CASE("the mma kernels of flash attention are right beside better ones", "[cuda]") {
  const Context cpu = cpu_context(4), &ctx = test_cuda_context();
  for (int64_t head_dim : {32, 64, 96, 128, 256}) {
    for (int64_t length : {7, 64, 129}) {
      const Example e{.queries = length, .keys = length, .head_dim = head_dim};
      INFO(e);
      const Inputs in = random_inputs(e), moved = on_gpu(in, Dtype::bf16);
      const Results oracle = run(cpu, in, options_of(cpu, e), AttentionKind::flash);
      Calls<BFloat16> calls(ctx, moved, options_of(ctx, e));
      // What one kernel keeps another may read.
      for (FlashKernel forward : {FlashKernel::mma, best_kernel()}) {
        for (FlashKernel backward : {FlashKernel::mma, best_kernel()}) {
          check_close(calls.run(ctx, forward, backward), oracle,
                      tolerance(Dtype::bf16, e.reduction()));
        }
      }
    }
  }
}
