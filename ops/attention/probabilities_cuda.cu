#include <cmath>

#include "core/cuda/launch.h"
#include "core/cuda/reduce.h"
#include "core/cuda/row.h"
#include "ops/attention/probabilities_kernels.h"

namespace xtrain {
namespace {

// exp(x) for a result of type T: the special function unit errs far less than bf16 rounds.
template <class T>
__device__ Accumulator<T> exponential(Accumulator<T> x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return __expf(x);
  } else {
    return exp(x);
  }
}

// body(shape, row) for the rows of the block; a row is the keys of one query.
template <class Shape, class Body>
__device__ void for_rows(const ProbabilitySizes& sizes, Body&& body) {
  const int64_t rows = sizes.rows(), stride = int64_t{gridDim.x} * blockDim.y;
  for (int64_t first = int64_t{blockIdx.x} * blockDim.y; first < rows; first += stride) {
    const int64_t row = first + threadIdx.y;
    body(Shape(sizes.keys, row, rows), row);
  }
}

// The scaled scores of one query. Packs of keys that it does not see are not read.
template <class Shape>
class VisibleScores {
 public:
  using T = typename Shape::Element;
  using A = Accumulator<T>;
  using Column = typename Shape::Column;

  __device__ VisibleScores(const Shape& shape, const T* row, A scale, const KeyRange& range)
      : shape_(shape),
        scale_(scale),
        range_(range),
        scores_(shape, row, [&](Column column) { return meets(column); }) {}

  template <class F>
  __device__ void for_elements(F&& f) const {
    shape_.for_packs([&](int pack, Column column) {
      if (!meets(column)) return;
      const Values<T> values = scores_.values(pack, column);
#pragma unroll
      for (int i = 0; i < kPackSize<T>; ++i) {
        if (range_.contains(column + i)) f(scale_ * values.at[i]);
      }
    });
  }

  // p = f(score) for the keys that are seen, 0 for the others.
  template <class F>
  __device__ void write(T* p, F&& f) const {
    shape_.for_packs([&](int pack, Column column) {
      Values<T> values = {};
      if (meets(column)) values = scores_.values(pack, column);
#pragma unroll
      for (int i = 0; i < kPackSize<T>; ++i) {
        values.at[i] = range_.contains(column + i) ? f(scale_ * values.at[i]) : A{0};
      }
      shape_.store(p, column, pack_of<T>(values));
    });
  }

 private:
  __device__ bool meets(Column column) const {
    return column < range_.end && column + kPackSize<T> > range_.first;
  }

  Shape shape_;
  A scale_;
  KeyRange range_;
  Row<Shape> scores_;
};

template <class Shape, class T>
__global__ void __launch_bounds__(kMostRowThreads)
    masked_softmax_rows(ProbabilitySizes sizes, Accumulator<T> scale, VisibleKeys visible,
                        const T* s, T* p) {
  using A = Accumulator<T>;
  __shared__ A scratch[kWarp];
  for_rows<Shape>(sizes, [&](const Shape& shape, int64_t row) {
    const int64_t start = row * sizes.keys, sequence = row / (sizes.heads * sizes.queries);
    KeyRange range;
    if (row < sizes.rows()) range = visible.of(sequence, row % sizes.queries);
    const VisibleScores<Shape> scores(shape, s + start, scale, range);
    A largest = -static_cast<A>(INFINITY), sum = 0;
    scores.for_elements([&](A v) { largest = Maximum()(largest, v); });
    largest = block_reduce(largest, Maximum(), -static_cast<A>(INFINITY), scratch);
    scores.for_elements([&](A v) { sum += exponential<T>(v - largest); });
    const A share = A{1} / block_reduce(sum, Add(), A{0}, scratch);
    scores.write(p + start, [&](A v) { return exponential<T>(v - largest) * share; });
  });
}

template <class Shape, class T>
__global__ void __launch_bounds__(kMostRowThreads)
    masked_softmax_backward_rows(ProbabilitySizes sizes, Accumulator<T> scale, const T* p_rows,
                                 const T* dp_rows, T* ds) {
  using A = Accumulator<T>;
  __shared__ A scratch[kWarp];
  for_rows<Shape>(sizes, [&](const Shape& shape, int64_t row) {
    const int64_t start = row * sizes.keys;
    const Row<Shape> p(shape, p_rows + start), dp(shape, dp_rows + start);
    A dot = 0;
    shape.for_packs([&](int pack, auto column) {
      Values<T> products = p.values(pack, column);
      const Values<T> slopes = dp.values(pack, column);
#pragma unroll
      for (int i = 0; i < kPackSize<T>; ++i) products.at[i] *= slopes.at[i];
      shape.for_elements(products, column, [&](A v) { dot += v; });
    });
    dot = block_reduce(dot, Add(), A{0}, scratch);
    shape.for_packs([&](int pack, auto column) {
      Values<T> values = p.values(pack, column);
      const Values<T> slopes = dp.values(pack, column);
#pragma unroll
      for (int i = 0; i < kPackSize<T>; ++i) values.at[i] *= scale * (slopes.at[i] - dot);
      shape.store(ds + start, column, pack_of<T>(values));
    });
  });
}

// Four random words serve four keys side by side.
constexpr int kQuad = 4;
template <class T>
struct alignas(kQuad * sizeof(T) < 16 ? kQuad * sizeof(T) : 16) Quad {
  T value[kQuad];
};

constexpr int kDropoutThreads = 256;

template <class T>
__global__ void __launch_bounds__(kDropoutThreads)
    drop_quads(ProbabilitySizes sizes, DropoutSource source, bool whole, const T* x, T* y) {
  using A = Accumulator<T>;
  const AttentionDropout dropout(source);
  const A kept = static_cast<A>(dropout.kept);
  const int64_t quads = ceil_div(sizes.keys, kQuad), count = sizes.rows() * quads;
  const int64_t stride = int64_t{gridDim.x} * kDropoutThreads;
  for (int64_t i = int64_t{blockIdx.x} * kDropoutThreads + threadIdx.x; i < count; i += stride) {
    const int64_t row = i / quads, quad = i % quads, at = row * sizes.keys + kQuad * quad;
    const int64_t query = row % sizes.queries, head = row / sizes.queries % sizes.heads;
    const Philox4 words = dropout.words(row / (sizes.heads * sizes.queries), head, query, quad);
    const int64_t left = sizes.keys - kQuad * quad;
    Quad<T> values;
    if (whole) {
      values = *reinterpret_cast<const Quad<T>*>(x + at);
    } else {
#pragma unroll
      for (int j = 0; j < kQuad; ++j) values.value[j] = j < left ? x[at + j] : T(0);
    }
#pragma unroll
    for (int j = 0; j < kQuad; ++j) {
      const A factor = dropout.keeps(words.word[j]) ? kept : A{0};
      values.value[j] = static_cast<T>(static_cast<A>(values.value[j]) * factor);
    }
    if (whole) {
      *reinterpret_cast<Quad<T>*>(y + at) = values;
    } else {
#pragma unroll
      for (int j = 0; j < kQuad; ++j) {
        if (j < left) y[at + j] = values.value[j];
      }
    }
  }
}

}  // namespace

template <class T>
void masked_softmax_forward(const Cuda& cuda, const ProbabilitySizes& sizes, double scale,
                            const VisibleKeys& visible, const T* s, T* p) {
  if (sizes.keys == 0) return;
  const bool whole = fits_packs(sizes.keys, s, p);
  const RowBlock block = row_block<T>(sizes.keys, whole);
  with_row_shape<T>(block, whole, [&](auto shape) {
    XT_LAUNCH(cuda, (LaunchShape{grid_for(sizes.rows(), block.rows), block.threads_of_block()}),
              (masked_softmax_rows<decltype(shape), T>), sizes, static_cast<Accumulator<T>>(scale),
              visible, s, p);
  });
}

template <class T>
void masked_softmax_backward(const Cuda& cuda, const ProbabilitySizes& sizes, double scale,
                             const T* p, const T* dp, T* ds) {
  if (sizes.keys == 0) return;
  const bool whole = fits_packs(sizes.keys, p, dp, ds);
  const RowBlock block = row_block<T>(sizes.keys, whole);
  with_row_shape<T>(block, whole, [&](auto shape) {
    XT_LAUNCH(cuda, (LaunchShape{grid_for(sizes.rows(), block.rows), block.threads_of_block()}),
              (masked_softmax_backward_rows<decltype(shape), T>), sizes,
              static_cast<Accumulator<T>>(scale), p, dp, ds);
  });
}

template <class T>
void probability_dropout_apply(const Cuda& cuda, const ProbabilitySizes& sizes,
                               const DropoutSource& source, const T* x, T* y) {
  if (sizes.keys == 0) return;
  // A thread makes the stream's key once, so it should draw several quads.
  constexpr int kQuadsOfThread = 8;
  const int64_t quads = sizes.rows() * ceil_div(sizes.keys, kQuad);
  const auto aligned = [](const T* address) {
    return reinterpret_cast<uintptr_t>(address) % alignof(Quad<T>) == 0;
  };
  const bool whole = sizes.keys % kQuad == 0 && aligned(x) && aligned(y);
  XT_LAUNCH(cuda, (LaunchShape{grid_for(quads, kDropoutThreads * kQuadsOfThread), kDropoutThreads}),
            (drop_quads<T>), sizes, source, whole, x, y);
}

#define XT_PROBABILITIES(T)                                                                     \
  template void masked_softmax_forward(const Cuda&, const ProbabilitySizes&, double,            \
                                       const VisibleKeys&, const T*, T*);                       \
  template void masked_softmax_backward(const Cuda&, const ProbabilitySizes&, double, const T*, \
                                        const T*, T*);                                          \
  template void probability_dropout_apply(const Cuda&, const ProbabilitySizes&,                 \
                                          const DropoutSource&, const T*, T*);
XT_PROBABILITIES(double)
XT_PROBABILITIES(float)
XT_PROBABILITIES(BFloat16)
#undef XT_PROBABILITIES

}  // namespace xtrain
