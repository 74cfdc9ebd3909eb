#pragma once
// Examples of attention for the tests of its GPU kernels, and calls of one kernel by name.

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>
#include <string>
#include <type_traits>
#include <vector>

#include "core/copy.h"
#include "core/cuda/hopper/support.h"
#include "ops/attention/flash_cuda_kernels.h"
#include "ops/attention_run.h"
#include "support/catch.h"
#include "support/gpu.h"

namespace xtrain {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// One call of attention; by default causal, the queries being the last of the keys.
struct Example {
  std::string what = "";
  int64_t batch = 2, queries = 1, keys = 1, heads = 2, kv_heads = 1, head_dim = 64;
  bool causal = true;
  int64_t window = 0;
  std::vector<int32_t> position_base = {}, key_length = {};
  bool documents = false;  // of 37 tokens, and every 50th query is blocked
  double dropout = 0.0;
  double magnitude = 1.0;   // of the queries
  bool equal_keys = false;  // every key and every value is the first one
  double rise = 0.0;        // powers of 2 by which scores grow over 64 keys

  Shape query_shape() const { return {batch, queries, heads, head_dim}; }
  Shape key_shape() const { return {batch, keys, kv_heads, head_dim}; }
  // Terms of the longest sum.
  int64_t reduction() const { return std::max({head_dim, keys, queries * heads / kv_heads}); }
};

inline std::ostream& operator<<(std::ostream& out, const Example& e) {
  return out << e.what << " queries " << e.queries << ", keys " << e.keys << ", heads " << e.heads
             << " to " << e.kv_heads << ", head_dim " << e.head_dim << ", dropout " << e.dropout
             << ", rise " << e.rise;
}

// Of bf16 numbers, so that all dtypes are fed the same.
inline Tensor random_tensor(const Context& ctx, const Shape& shape, uint64_t site,
                            double magnitude) {
  const RandomStream stream = random_stream(11, 0, site);
  std::vector<double> values(numel_of(shape));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = magnitude * (4.0 * stream.uniform(0, i) - 2.0);
  }
  return cast(ctx, cast(ctx, from_host(ctx, values, shape), Dtype::bf16), Dtype::f64);
}

using Inputs = AttentionInputs;
using Results = AttentionResults;

// Element 0 of every query and every key, so that scores grow along the keys.
inline void let_scores_rise(const Context& ctx, const Inputs& in, const Example& e) {
  constexpr double kQuery = 4.0, kLog2OfE = 1.4426950408889634;
  const double scale = 1.0 / std::sqrt(static_cast<double>(e.head_dim));
  std::vector<double> values(e.keys);
  for (size_t j = 0; j < values.size(); ++j) {
    values[j] = e.rise * static_cast<double>(j) / 64.0 / (kQuery * scale * kLog2OfE);
  }
  const Tensor rising = cast(ctx, from_host(ctx, values, {1, e.keys, 1, 1}), Dtype::bf16);
  const Shape one_element{e.batch, e.keys, e.kv_heads, 1};
  copy(ctx, cast(ctx, rising, Dtype::f64).expand(one_element), in.k.slice(3, 0, 1));
  fill(ctx, in.q.slice(3, 0, 1), kQuery);
}

// In f64 on the CPU.
inline Inputs random_inputs(const Example& e) {
  const Context ctx = cpu_context(1);
  Inputs in{random_tensor(ctx, e.query_shape(), 0, e.magnitude),
            random_tensor(ctx, e.key_shape(), 1, 1.0), random_tensor(ctx, e.key_shape(), 2, 1.0),
            random_tensor(ctx, e.query_shape(), 3, 1.0)};
  if (e.equal_keys) {
    for (Tensor* x : {&in.k, &in.v}) *x = x->slice(1, 0, 1).expand(e.key_shape());
  }
  if (e.rise != 0.0) let_scores_rise(ctx, in, e);
  return in;
}

inline Inputs on_gpu(const Inputs& in, Dtype dtype) {
  const Context host = cpu_context(1), &gpu = test_cuda_context();
  const auto move = [&](const Tensor& x) {
    return cast(gpu, from_host(gpu, to_host<double>(host, x), x.shape()), dtype);
  };
  return Inputs{move(in.q), move(in.k), move(in.v), move(in.dy)};
}

inline Inputs random_inputs_on_gpu(const Example& e, Dtype dtype) {
  return on_gpu(random_inputs(e), dtype);
}

inline AttentionOptions options_of(const Context& ctx, const Example& e) {
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

// A context in training step 3, for dropout.
struct TrainingStep {
  Tensor number;
  Context ctx;

  explicit TrainingStep(const Context& outside)
      : number(from_host(outside, std::vector<int64_t>{3}, {1})), ctx(outside) {
    ctx.training = true;
    ctx.random = RandomKey{.seed = 17, .step = number.data<int64_t>()};
  }
};

inline Results run(const Context& ctx, const Inputs& in, const AttentionOptions& options,
                   AttentionKind kind) {
  return run_attention(TrainingStep(ctx).ctx, in, options, kind);
}

inline Results run_on_gpu(const Example& e, const Inputs& in, Dtype dtype, AttentionKind kind) {
  const Context& ctx = test_cuda_context();
  return run(ctx, on_gpu(in, dtype), options_of(ctx, e), kind);
}

inline std::vector<Example> mask_examples(int64_t head_dim) {
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
inline Tensor surrounded_by_nan(const Context& ctx, const Tensor& x) {
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
inline void poison_pool(const Context& ctx) {
  std::vector<Tensor> taken;
  for (int64_t elements = 64; elements <= 1 << 20; elements *= 2) {
    for (int i = 0; i < 6; ++i) {
      taken.push_back(empty(ctx, {elements}, Dtype::f32));
      fill(ctx, taken.back(), kNaN);
    }
  }
}

// Rows of a sequence that no query may see, filled with NaN.
inline void poison_unseen(const Context& ctx, const Inputs& in, const Example& e) {
  for (size_t b = 0; b < e.key_length.size(); ++b) {
    const int64_t length = e.key_length[b];
    for (const Tensor& x : {in.k, in.v}) {
      fill(ctx, x.slice(0, b, 1).slice(1, length, e.keys - length), kNaN);
    }
  }
}

inline FlashProblem problem_of(const Context& ctx, const Inputs& in,
                               const AttentionOptions& options) {
  const auto strides = [](const Tensor& x) {
    return HeadStrides{x.stride(0), x.stride(1), x.stride(2)};
  };
  const AttentionSizes n{in.q.size(0), in.q.size(1), in.k.size(1),
                         in.q.size(2), in.k.size(2), in.q.size(3)};
  return FlashProblem{n,
                      1.0 / std::sqrt(static_cast<double>(n.head_dim)),
                      VisibleKeys(options.mask, n.queries, n.keys),
                      options.dropout.acts(ctx),
                      DropoutSource{options.dropout, ctx.random},
                      strides(in.q),
                      strides(in.k),
                      strides(in.v)};
}

template <class T>
FlashGradient gradient_of(Tensor& x) {
  return FlashGradient{x.mutable_data<Accumulator<T>>(),
                       true,
                       false,
                       x.stride(0),
                       x.stride(1),
                       x.stride(2),
                       x.stride(3)};
}

// A tensor between two walls, which nothing may write to.
struct WalledTensor {
  static constexpr int64_t kWall = 256;
  Tensor memory, inside;

  WalledTensor(const Context& ctx, const Shape& shape, Dtype dtype)
      : memory(empty(ctx, {numel_of(shape) + 2 * kWall}, dtype)),
        inside(memory.slice(0, kWall, numel_of(shape)).reshape(shape)) {}

  bool walls_stand(const Context& ctx) const {
    for (const int64_t start : {int64_t{0}, memory.numel() - kWall}) {
      for (const double x : as_doubles(ctx, memory.slice(0, start, kWall))) {
        if (!std::isnan(x)) return false;
      }
    }
    return true;
  }
};

// Forward and backward of one problem, by kernels that may be named.
template <class T>
struct Calls {
  Inputs in;
  AttentionOptions options;
  std::vector<WalledTensor> results;
  Tensor o, log_sum, dq, dk, dv;
  FlashForward<T> forward;
  FlashBackward<T> backward;

  Calls(const Context& ctx, const Inputs& inputs, const AttentionOptions& given)
      : in(inputs),
        options(given),
        results{WalledTensor(ctx, in.q.shape(), dtype_of<T>),
                WalledTensor(ctx, {in.q.size(0), in.q.size(2), in.q.size(1)}, kWide),
                WalledTensor(ctx, in.q.shape(), kWide), WalledTensor(ctx, in.k.shape(), kWide),
                WalledTensor(ctx, in.v.shape(), kWide)},
        o(results[0].inside),
        log_sum(results[1].inside),
        dq(results[2].inside),
        dk(results[3].inside),
        dv(results[4].inside),
        forward{problem_of(ctx, in, options),
                in.q.data<T>(),
                in.k.data<T>(),
                in.v.data<T>(),
                o.mutable_data<T>(),
                log_sum.mutable_data<Accumulator<T>>()},
        backward{forward.problem,    forward.q,         forward.k,       forward.v,
                 forward.o,          forward.log_sum,   in.dy.data<T>(), gradient_of<T>(dq),
                 gradient_of<T>(dk), gradient_of<T>(dv)} {}

  // Into memory that holds NaN.
  void compute(const Context& ctx, FlashKernel forward_kernel, FlashKernel backward_kernel) {
    const Cuda cuda{ctx};
    for (const WalledTensor& x : results) fill(ctx, x.memory, kNaN);
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
  Results run(const Context& ctx, FlashKernel forward_kernel, FlashKernel backward_kernel) {
    compute(ctx, forward_kernel, backward_kernel);
    for (const WalledTensor& x : results) CHECK(x.walls_stand(ctx));
    return Results{as_doubles(ctx, o), as_doubles(ctx, dq), as_doubles(ctx, dk),
                   as_doubles(ctx, dv)};
  }

 private:
  static constexpr Dtype kWide = dtype_of<Accumulator<T>>;
};

inline double norm_of(const std::vector<double>& x) {
  double sum = 0.0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

// ||x - y|| / ||y||; where all terms of y cancel out, as a share of ||dy||.
inline double norm_error(const std::vector<double>& x, const std::vector<double>& y,
                         double norm_of_dy) {
  std::vector<double> difference(y.size());
  for (size_t i = 0; i < y.size(); ++i) difference[i] = x[i] - y[i];
  const double size = norm_of(y), error = norm_of(difference);
  return error / (size > 1e-6 * norm_of_dy ? size : norm_of_dy);
}

// Infinities of rows that see nothing are equal.
inline double largest_difference(const std::vector<double>& x, const std::vector<double>& y) {
  double largest = 0.0;
  for (size_t i = 0; i < y.size(); ++i) {
    const double difference = x[i] == y[i] ? 0.0 : std::abs(x[i] - y[i]);
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

inline bool gpu_has_wgmma() {
  return has_wgmma(Cuda{test_cuda_context()});
}
// Of head sizes and layouts that suit the tensor cores.
inline FlashKernel best_kernel() {
  return gpu_has_wgmma() ? FlashKernel::wgmma : FlashKernel::mma;
}

}  // namespace xtrain
