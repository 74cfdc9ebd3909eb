// Flash attention on the GPU against the CPU's oracle in f64, against composed attention on the
// GPU, and against itself.

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "core/copy.h"
#include "core/cuda/hopper/support.h"
#include "ops/attention/flash_cuda_kernels.h"
#include "ops/attention_run.h"
#include "support/catch.h"
#include "support/gpu.h"
#include "support/op_tests.h"
#include "support/tolerance.h"

using namespace xtrain;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// One call of attention; by default causal, the queries being the last of the keys.
struct Example {
  std::string what = "";
  int64_t batch = 2, queries = 1, keys = 1, heads = 2, kv_heads = 1, head_dim = 64;
  bool causal = true;
  int64_t window = 0;
  std::vector<int32_t> position_base = {}, key_length = {};
  bool documents = false;  // of 37 tokens, and every 50th query is blocked
  double dropout = 0.0;
  double magnitude = 1.0;  // of the queries

  Shape query_shape() const { return {batch, queries, heads, head_dim}; }
  Shape key_shape() const { return {batch, keys, kv_heads, head_dim}; }
  // Terms of the longest sum.
  int64_t reduction() const { return std::max({head_dim, keys, queries * heads / kv_heads}); }
};

std::ostream& operator<<(std::ostream& out, const Example& e) {
  return out << e.what << " queries " << e.queries << ", keys " << e.keys << ", heads " << e.heads
             << " to " << e.kv_heads << ", head_dim " << e.head_dim << ", dropout " << e.dropout;
}

// Of bf16 numbers, so that all dtypes are fed the same.
Tensor random_tensor(const Context& ctx, const Shape& shape, uint64_t site, double magnitude) {
  const RandomStream stream = random_stream(11, 0, site);
  std::vector<double> values(numel_of(shape));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = magnitude * (4.0 * stream.uniform(0, i) - 2.0);
  }
  return cast(ctx, cast(ctx, from_host(ctx, values, shape), Dtype::bf16), Dtype::f64);
}

using Inputs = AttentionInputs;
using Results = AttentionResults;

// In f64 on the CPU.
Inputs random_inputs(const Example& e) {
  const Context ctx = cpu_context(1);
  return Inputs{random_tensor(ctx, e.query_shape(), 0, e.magnitude),
                random_tensor(ctx, e.key_shape(), 1, 1.0),
                random_tensor(ctx, e.key_shape(), 2, 1.0),
                random_tensor(ctx, e.query_shape(), 3, 1.0)};
}

Inputs on_gpu(const Inputs& in, Dtype dtype) {
  const Context host = cpu_context(1), &gpu = test_cuda_context();
  const auto move = [&](const Tensor& x) {
    return cast(gpu, from_host(gpu, to_host<double>(host, x), x.shape()), dtype);
  };
  return Inputs{move(in.q), move(in.k), move(in.v), move(in.dy)};
}

Inputs random_inputs_on_gpu(const Example& e, Dtype dtype) {
  return on_gpu(random_inputs(e), dtype);
}

AttentionOptions options_of(const Context& ctx, const Example& e) {
  AttentionOptions options;
  options.dropout = Dropout{.p = e.dropout, .site = 5};
  options.mask = causal_mask(ctx, e.batch, e.queries, e.keys);
  options.mask.causal = e.causal;
  options.mask.window = e.window;
  if (!e.position_base.empty()) {
    options.mask.position_base = from_host(ctx, e.position_base, {e.batch});
  }
  if (!e.key_length.empty()) options.mask.key_length = from_host(ctx, e.key_length, {e.batch});
  if (e.documents) {
    std::vector<int32_t> start(e.batch * e.queries);
    for (size_t i = 0; i < start.size(); ++i) {
      const int32_t t = static_cast<int32_t>(i % e.queries);
      start[i] = t % 50 == 49 ? INT32_MAX : t / 37 * 37;
    }
    options.mask.document_start = from_host(ctx, start, {e.batch, e.queries});
  }
  return options;
}

// In the training step 3, for dropout.
Results run(Context ctx, const Inputs& in, const AttentionOptions& options, AttentionKind kind) {
  ctx.training = true;
  const Tensor step = from_host(ctx, std::vector<int64_t>{3}, {1});
  ctx.random = RandomKey{.seed = 17, .step = step.data<int64_t>()};
  return run_attention(ctx, in, options, kind);
}

Results run_on_gpu(const Example& e, const Inputs& in, Dtype dtype, AttentionKind kind) {
  const Context& ctx = test_cuda_context();
  return run(ctx, on_gpu(in, dtype), options_of(ctx, e), kind);
}

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

std::vector<Example> mask_examples(int64_t head_dim) {
  std::vector<Example> examples = {
      {.what = "fewer queries than keys", .queries = 70, .keys = 190},
      {.what = "more queries than keys", .queries = 190, .keys = 70},
      {.what = "no mask", .queries = 100, .keys = 131, .causal = false},
      {.what = "window", .queries = 300, .keys = 300, .window = 40},
      {.what = "wide window", .queries = 200, .keys = 200, .window = 130},
      {.what = "window without causal", .queries = 150, .keys = 150, .causal = false, .window = 70},
      {.what = "caches of different length",
       .queries = 20,
       .keys = 90,
       .position_base = {50, 3},
       .key_length = {70, 23}},
      {.what = "a sequence without keys",
       .queries = 70,
       .keys = 70,
       .causal = false,
       .key_length = {33, 0}},
      {.what = "documents", .queries = 260, .keys = 260, .documents = true},
      {.what = "documents and a window",
       .queries = 130,
       .keys = 130,
       .window = 20,
       .documents = true},
      {.what = "no queries", .queries = 0, .keys = 70},
      {.what = "no keys", .queries = 70, .keys = 0},
      {.what = "no sequences", .batch = 0, .queries = 70, .keys = 70},
  };
  for (Example& e : examples) e.head_dim = head_dim;
  return examples;
}

// The inputs inside of larger tensors that hold NaN everywhere else.
Tensor surrounded_by_nan(const Context& ctx, const Tensor& x) {
  const Shape& n = x.shape();
  Tensor large = empty(ctx, {n[0] + 2, n[1] + 3, n[2] + 1, n[3] + 24}, x.dtype());
  fill(ctx, large, kNaN);
  Tensor middle = large;
  const int64_t start[] = {1, 2, 0, 8};
  for (int d = 0; d < 4; ++d) middle = middle.slice(d, start[d], n[d]);
  copy(ctx, x, middle);
  return middle;
}

// Leaves NaN in the memory that the next tensors get.
void poison_pool(const Context& ctx) {
  std::vector<Tensor> taken;
  for (int64_t elements = 64; elements <= 1 << 20; elements *= 2) {
    for (int i = 0; i < 6; ++i) {
      taken.push_back(empty(ctx, {elements}, Dtype::f32));
      fill(ctx, taken.back(), kNaN);
    }
  }
}

template <class T>
FlashProblem problem_of(const Inputs& in, const AttentionOptions& options) {
  const auto strides = [](const Tensor& x) {
    return HeadStrides{x.stride(0), x.stride(1), x.stride(2)};
  };
  const AttentionSizes n{in.q.size(0), in.q.size(1), in.k.size(1),
                         in.q.size(2), in.k.size(2), in.q.size(3)};
  return FlashProblem{n,
                      1.0 / std::sqrt(static_cast<double>(n.head_dim)),
                      VisibleKeys(options.mask, n.queries, n.keys),
                      false,
                      {},
                      strides(in.q),
                      strides(in.k),
                      strides(in.v)};
}

FlashGradient gradient_of(Tensor& x) {
  return FlashGradient{
      x.mutable_data<float>(), true, false, x.stride(0), x.stride(1), x.stride(2), x.stride(3)};
}

// Forward and backward of one problem, by kernels that may be named.
template <class T>
struct Calls {
  const AttentionOptions options;  // the calls point into its masks
  Tensor o, log_sum, dq, dk, dv;
  FlashForward<T> forward;
  FlashBackward<T> backward;

  Calls(const Context& ctx, const Inputs& in, const AttentionOptions& given)
      : options(given),
        o(empty(ctx, in.q.shape(), dtype_of<T>)),
        log_sum(empty(ctx, {in.q.size(0), in.q.size(2), in.q.size(1)}, Dtype::f32)),
        dq(empty(ctx, in.q.shape(), Dtype::f32)),
        dk(empty(ctx, in.k.shape(), Dtype::f32)),
        dv(empty(ctx, in.v.shape(), Dtype::f32)),
        forward{problem_of<T>(in, options),
                in.q.data<T>(),
                in.k.data<T>(),
                in.v.data<T>(),
                o.mutable_data<T>(),
                log_sum.mutable_data<float>()},
        backward{forward.problem, forward.q,       forward.k,       forward.v,
                 forward.o,       forward.log_sum, in.dy.data<T>(), gradient_of(dq),
                 gradient_of(dk), gradient_of(dv)} {}

  Results run(const Context& ctx, FlashKernel forward_kernel, FlashKernel backward_kernel) {
    const Cuda cuda{ctx};
    for (Tensor x : {o, log_sum, dq, dk, dv}) fill(ctx, x, kNaN);
    if constexpr (kCudaBuilt) {
      if (forward_kernel == FlashKernel::ffma) ffma_forward(cuda, forward);
      if (forward_kernel == FlashKernel::split_keys) split_keys_forward(cuda, forward);
      if (backward_kernel == FlashKernel::ffma) ffma_backward(cuda, backward);
      if constexpr (std::is_same_v<T, BFloat16>) {
        if (forward_kernel == FlashKernel::mma) mma_forward(cuda, forward);
        if (forward_kernel == FlashKernel::wgmma) wgmma_forward(cuda, forward);
        if (backward_kernel == FlashKernel::mma) mma_backward(cuda, backward);
        if (backward_kernel == FlashKernel::wgmma) wgmma_backward(cuda, backward);
      }
    }
    return Results{as_doubles(ctx, o), as_doubles(ctx, dq), as_doubles(ctx, dk),
                   as_doubles(ctx, dv)};
  }
};

bool gpu_has_wgmma() {
  return has_wgmma(Cuda{test_cuda_context()});
}
// Of head sizes and layouts that suit the tensor cores.
FlashKernel best_kernel() {
  return gpu_has_wgmma() ? FlashKernel::wgmma : FlashKernel::mma;
}

// The choice falls on these kernels, and the op computes what they compute.
template <class T>
void check_runs(const Context& ctx, const Inputs& in, const Example& e, FlashKernel forward,
                FlashKernel backward) {
  INFO(dtype_of<T> << ": " << e);
  const AttentionOptions options = options_of(ctx, e);
  Calls<T> calls(ctx, in, options);
  if constexpr (kCudaBuilt) {
    CHECK(flash_kernel(Cuda{ctx}, calls.forward) == forward);
    CHECK(flash_kernel(Cuda{ctx}, calls.backward) == backward);
  }
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
  for (int64_t head_dim : {7, 20, 64, 128}) {
    Example e{.queries = 90, .keys = 131, .heads = 4, .kv_heads = 2, .head_dim = head_dim};
    e.key_length = {131, 77};
    for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      INFO(dtype << ", head_dim " << head_dim);
      const Inputs in = random_inputs_on_gpu(e, dtype);
      const AttentionOptions options = options_of(ctx, e);
      const Results expected = run(ctx, in, options, AttentionKind::flash);
      const Inputs poisoned{surrounded_by_nan(ctx, in.q), surrounded_by_nan(ctx, in.k),
                            surrounded_by_nan(ctx, in.v), surrounded_by_nan(ctx, in.dy)};
      for (Tensor keys : {poisoned.k, poisoned.v}) {
        fill(ctx, keys.slice(0, 1, 1).slice(1, 77, 131 - 77), kNaN);
      }
      poison_pool(ctx);
      const Results got = run(ctx, poisoned, options, AttentionKind::flash);
      CHECK(got == expected);
      CHECK(std::all_of(got.dk.end() - (131 - 77) * 2 * head_dim, got.dk.end(),
                        [](double x) { return x == 0.0; }));
    }
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

TEST_CASE("the wgmma kernels of flash attention refuse what they cannot do", "[cuda]") {
  const Context& ctx = test_cuda_context();
  const Example e{.queries = 70, .keys = 70};
  const Inputs in = random_inputs_on_gpu(e, Dtype::bf16);
  Calls<BFloat16> calls(ctx, in, options_of(ctx, e));
  const auto supported = [&](auto change) {
    FlashForward<BFloat16> forward = calls.forward;
    FlashBackward<BFloat16> backward = calls.backward;
    change(forward.problem);
    change(backward.problem);
    const bool is = kCudaBuilt && wgmma_supports(Cuda{ctx}, forward);
    CHECK((kCudaBuilt && wgmma_supports(Cuda{ctx}, backward)) == is);
    return is;
  };
  CHECK(supported([](FlashProblem&) {}) == gpu_has_wgmma());
  CHECK_FALSE(supported([](FlashProblem& p) { p.drops = true; }));
  CHECK_FALSE(supported([](FlashProblem& p) { p.scale = -0.5; }));
  CHECK_FALSE(supported([](FlashProblem& p) { p.sizes.head_dim = 80; }));
  CHECK_FALSE(supported([](FlashProblem& p) { p.k.time += 1; }));
  CHECK_FALSE(supported([](FlashProblem& p) { p.sizes.keys = 0; }));
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

TEST_CASE("flash attention by wgmma is right where many tiles follow each other", "[cuda]") {
  if (!gpu_has_wgmma()) return;
  const Context cpu = cpu_context(0), &ctx = test_cuda_context();
  std::vector<Example> examples;
  for (int64_t head_dim : {32, 64, 96, 128, 256}) {
    for (int64_t length : {1, 127, 128, 191, 193, 1000}) {
      examples.push_back({.queries = length, .keys = length, .head_dim = head_dim});
    }
    for (Example e : mask_examples(head_dim)) {
      if (e.queries == 0 || e.keys == 0 || e.batch == 0) continue;
      examples.push_back(e);
    }
    // More tiles than multiprocessors, so that blocks work on several of them.
    examples.push_back({.what = "many heads",
                        .batch = 3,
                        .queries = 400,
                        .keys = 400,
                        .heads = 48,
                        .kv_heads = 6,
                        .head_dim = head_dim});
    examples.push_back({.what = "long windows",
                        .queries = 1500,
                        .keys = 1500,
                        .head_dim = head_dim,
                        .window = 300});
  }
  examples.push_back({.what = "long", .batch = 1, .queries = 4096, .keys = 4096});
  for (const Example& e : examples) {
    INFO(e);
    const Inputs in = random_inputs(e), moved = on_gpu(in, Dtype::bf16);
    const AttentionOptions options = options_of(ctx, e);
    Calls<BFloat16> calls(ctx, moved, options);
    const Results got = calls.run(ctx, FlashKernel::wgmma, FlashKernel::wgmma);
    const std::vector<double> log_sum = as_doubles(ctx, calls.log_sum);
    const Results oracle = run(cpu, in, options_of(cpu, e), AttentionKind::flash);
    check_close(got, oracle, tolerance(Dtype::bf16, e.reduction()));
    // By the other units, from the same numbers in f32.
    Calls<float> f32(ctx, on_gpu(in, Dtype::f32), options);
    f32.run(ctx, FlashKernel::ffma, FlashKernel::ffma);
    const std::vector<double> expected = as_doubles(ctx, f32.log_sum);
    int wrong = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const bool same = log_sum[i] == expected[i];  // infinities
      wrong += !same && !(std::abs(log_sum[i] - expected[i]) <= kLogSumTolerance);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("flash attention by wgmma gives the same bits a thousand times beside another kernel",
          "[cuda]") {
  if (!gpu_has_wgmma()) return;
  const Context& ctx = test_cuda_context();
  const Context beside = cuda_context(0);
  const Tensor x = random_tensor(beside, {1024, 1024}, 9, 1.0);
  Tensor y = empty(beside, x.shape(), x.dtype());
  for (int64_t head_dim : {64, 128}) {
    const Example e{.queries = 700, .keys = 700, .heads = 8, .kv_heads = 2, .head_dim = head_dim};
    const Inputs in = random_inputs_on_gpu(e, Dtype::bf16);
    Calls<BFloat16> calls(ctx, in, options_of(ctx, e));
    const auto once = [&] {
      for (int i = 0; i < 4; ++i) copy(beside, x, y);
      wgmma_forward(Cuda{ctx}, calls.forward);
      wgmma_backward(Cuda{ctx}, calls.backward);
      std::vector<std::byte> bits;
      for (const Tensor& x : {calls.o, calls.log_sum, calls.dq, calls.dk, calls.dv}) {
        std::vector<std::byte> more(x.nbytes());
        copy_to_host(ctx, x, more);
        bits.insert(bits.end(), more.begin(), more.end());
      }
      return bits;
    };
    const std::vector<std::byte> first = once();
    int different = 0;
    for (int i = 0; i < 1000; ++i) different += once() != first;
    CHECK(different == 0);
  }
}

TEST_CASE("flash attention by wgmma writes gradients into regions of any layout", "[cuda]") {
  if (!gpu_has_wgmma()) return;
  const Context& ctx = test_cuda_context();
  for (int64_t head_dim : {32, 64, 96, 128, 256}) {
    const Example e{.queries = 150, .keys = 150, .heads = 4, .kv_heads = 2, .head_dim = head_dim};
    const Inputs in = random_inputs_on_gpu(e, Dtype::bf16);
    Calls<BFloat16> calls(ctx, in, options_of(ctx, e));
    calls.run(ctx, FlashKernel::wgmma, FlashKernel::wgmma);
    // Rows of 16 bytes, of 2 bytes, and elements apart from each other; written and added to.
    for (int64_t spare : {8, 1}) {
      for (int64_t step : {1, 2}) {
        for (bool accumulate : {false, true}) {
          INFO(e << ", spare " << spare << ", step " << step << ", accumulate " << accumulate);
          Tensor packed = empty(ctx, {2, 151, 9, head_dim * step + spare}, Dtype::bf16);
          fill(ctx, packed, accumulate ? 3.0 : kNaN);
          const Tensor inside = packed.slice(1, 1, 150);
          FlashBackward<BFloat16> call = calls.backward;
          const auto target = [&](int64_t first_head) {
            BFloat16* data = const_cast<BFloat16*>(inside.data<BFloat16>());
            return FlashGradient{data + first_head * inside.stride(2),
                                 false,
                                 accumulate,
                                 inside.stride(0),
                                 inside.stride(1),
                                 inside.stride(2),
                                 step};
          };
          call.dq = target(0);
          call.dk = target(4);
          call.dv = target(6);
          wgmma_backward(Cuda{ctx}, call);
          const std::vector<double> got = as_doubles(ctx, packed);
          const std::vector<double> wide[] = {as_doubles(ctx, calls.dq), as_doubles(ctx, calls.dk),
                                              as_doubles(ctx, calls.dv)};
          int wrong = 0;
          for (size_t i = 0; i < got.size(); ++i) {
            const int64_t width = head_dim * step + spare, column = i % width, row = i / width;
            const int64_t head = row % 9, time = row / 9 % 151, batch = row / 9 / 151;
            const bool is_inside =
                time > 0 && head < 8 && column % step == 0 && column / step < head_dim;
            const int part = head < 4 ? 0 : head < 6 ? 1 : 2;
            const int64_t heads = part == 0 ? 4 : 2, first = part == 0 ? 0 : part == 1 ? 4 : 6;
            double expected = accumulate ? 3.0 : kNaN;
            if (is_inside) {
              const int64_t at = ((batch * 150 + time - 1) * heads + head - first) * head_dim;
              const float x = static_cast<float>(wide[part][at + column / step]);
              expected = static_cast<float>(BFloat16(accumulate ? 3.0f + x : x));
            }
            wrong += got[i] != expected && !(std::isnan(got[i]) && std::isnan(expected));
          }
          CHECK(wrong == 0);
        }
      }
    }
  }
}
