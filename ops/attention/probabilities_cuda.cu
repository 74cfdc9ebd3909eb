#include "core/cuda/exponential.h"
#include "core/cuda/launch.h"
#include "core/cuda/reduce.h"
#include "core/cuda/row.h"
#include "ops/attention/probabilities_kernels.h"

namespace xtrain {
namespace {

// Where a row of keys belongs. Rows are counted in 32 bits where these suffice, since a division in
// 64 takes long.
struct QueryPlace {
  int64_t batch, head, query;

  __device__ QueryPlace(const ProbabilitySizes& sizes, int64_t row) {
    if (sizes.rows() <= UINT32_MAX) {
      locate<uint32_t>(sizes, row);
    } else {
      locate<int64_t>(sizes, row);
    }
  }

 private:
  template <class Index>
  __device__ void locate(const ProbabilitySizes& sizes, int64_t row) {
    const Index queries = sizes.queries, heads = sizes.heads, index = row;
    query = index % queries;
    head = index / queries % heads;
    batch = index / queries / heads;
  }
};

template <class Shape, class T>
__global__ void __launch_bounds__(kMostRowThreads)
    masked_softmax_rows(ProbabilitySizes sizes, Accumulator<T> scale, VisibleKeys visible,
                        const T* s, T* p) {
  using A = Accumulator<T>;
  using Column = typename Shape::Column;
  const A minus_infinity = -static_cast<A>(INFINITY);
  __shared__ A scratch[kWarp];
  for_rows<Shape>(sizes.rows(), sizes.keys, [&](const Shape& shape, int64_t row, bool inside) {
    const QueryPlace place(sizes, row);
    const KeyRange range = visible.of(place.batch, place.query);
    const T* row_of_s = s + row * sizes.keys;
    // Scores that are hidden are not read, pack by pack, and count as -inf.
    const Row scores(shape, [&](int, Column column) {
      Values<T> values = {};
      if (column < range.end && column + kPackSize < T >> range.first) {
        values = values_of(shape.load(row_of_s, column));
      }
#pragma unroll
      for (int i = 0; i < kPackSize<T>; ++i) {
        values.at[i] = range.contains(column + i) ? scale * values.at[i] : minus_infinity;
      }
      return values;
    });
    A largest = minus_infinity, sum = 0;
    scores.for_elements([&](A v) { largest = Maximum()(largest, v); });
    largest = block_reduce(largest, Maximum(), minus_infinity, scratch);
    const Row e(shape, [&](int pack, Column column) {
      Values<T> values = scores.values(pack, column);
#pragma unroll
      for (int i = 0; i < kPackSize<T>; ++i) {
        values.at[i] = range.contains(column + i) ? exponential<T>(values.at[i] - largest) : A{0};
      }
      return values;
    });
    e.for_elements([&](A v) { sum += v; });
    const A share = A{1} / block_reduce(sum, Add(), A{0}, scratch);
    if (!inside) return;
    shape.for_packs([&](int pack, Column column) {
      Values<T> values = e.values(pack, column);
#pragma unroll
      for (int i = 0; i < kPackSize<T>; ++i) {
        values.at[i] = range.contains(column + i) ? values.at[i] * share : A{0};
      }
      shape.store(p + row * sizes.keys, column, pack_of<T>(values));
    });
  });
}

template <class Shape, class T>
__global__ void __launch_bounds__(kMostRowThreads)
    masked_softmax_backward_rows(ProbabilitySizes sizes, Accumulator<T> scale, const T* p_rows,
                                 const T* dp_rows, T* ds) {
  using A = Accumulator<T>;
  using Column = typename Shape::Column;
  __shared__ A scratch[kWarp];
  for_rows<Shape>(sizes.rows(), sizes.keys, [&](const Shape& shape, int64_t row, bool inside) {
    const int64_t start = row * sizes.keys;
    const auto loaded = [&](const T* from) {
      return [&shape, from](int, Column column) { return values_of(shape.load(from, column)); };
    };
    const Row p(shape, loaded(p_rows + start)), dp(shape, loaded(dp_rows + start));
    A dot = 0;
    shape.for_packs([&](int pack, Column column) {
      Values<T> products = p.values(pack, column);
      const Values<T> slopes = dp.values(pack, column);
#pragma unroll
      for (int i = 0; i < kPackSize<T>; ++i) products.at[i] *= slopes.at[i];
      shape.for_elements(products, column, [&](A v) { dot += v; });
    });
    dot = block_reduce(dot, Add(), A{0}, scratch);
    if (!inside) return;
    shape.for_packs([&](int pack, Column column) {
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

// One warp a row, which finds out once where the row belongs.
constexpr int kDropoutRows = 8;

template <class T>
__device__ Quad<T> load_quad(const T* x, int64_t left, bool whole) {
  if (whole) return *reinterpret_cast<const Quad<T>*>(x);
  Quad<T> quad;
#pragma unroll
  for (int j = 0; j < kQuad; ++j) quad.value[j] = j < left ? x[j] : T(0);
  return quad;
}

template <class T>
__device__ void store_quad(T* y, const Quad<T>& quad, int64_t left, bool whole) {
  if (whole) {
    *reinterpret_cast<Quad<T>*>(y) = quad;
    return;
  }
#pragma unroll
  for (int j = 0; j < kQuad; ++j) {
    if (j < left) y[j] = quad.value[j];
  }
}

template <class T>
__global__ void __launch_bounds__(kWarp* kDropoutRows)
    drop_rows(ProbabilitySizes sizes, DropoutSource source, bool whole, const T* x, T* y) {
  using A = Accumulator<T>;
  const AttentionDropout dropout(source);
  const A kept = static_cast<A>(dropout.kept);
  const int64_t stride = int64_t{gridDim.x} * kDropoutRows;
  for (int64_t row = int64_t{blockIdx.x} * kDropoutRows + threadIdx.y; row < sizes.rows();
       row += stride) {
    const QueryPlace place(sizes, row);
    for (int64_t quad = threadIdx.x; kQuad * quad < sizes.keys; quad += kWarp) {
      const Philox4 words = dropout.words(place.batch, place.head, place.query, quad);
      const int64_t at = row * sizes.keys + kQuad * quad, left = sizes.keys - kQuad * quad;
      Quad<T> values = load_quad(x + at, left, whole);
#pragma unroll
      for (int j = 0; j < kQuad; ++j) {
        const A factor = dropout.keeps(words.word[j]) ? kept : A{0};
        values.value[j] = static_cast<T>(static_cast<A>(values.value[j]) * factor);
      }
      store_quad(y + at, values, left, whole);
    }
  }
}

}  // namespace

template <class T>
void masked_softmax_forward(const Cuda& cuda, const ProbabilitySizes& sizes, double scale,
                            const VisibleKeys& visible, const T* s, T* p) {
  if (sizes.keys == 0) return;
  const RowBlock block = row_block<T>(sizes.keys, fits_packs(sizes.keys, s, p));
  with_row_shape<T>(block, [&](auto shape) {
    XT_LAUNCH(cuda, (LaunchShape{grid_for(sizes.rows(), block.rows), block.threads_of_block()}),
              (masked_softmax_rows<decltype(shape), T>), sizes, static_cast<Accumulator<T>>(scale),
              visible, s, p);
  });
}

template <class T>
void masked_softmax_backward(const Cuda& cuda, const ProbabilitySizes& sizes, double scale,
                             const T* p, const T* dp, T* ds) {
  if (sizes.keys == 0) return;
  const RowBlock block = row_block<T>(sizes.keys, fits_packs(sizes.keys, p, dp, ds));
  with_row_shape<T>(block, [&](auto shape) {
    XT_LAUNCH(cuda, (LaunchShape{grid_for(sizes.rows(), block.rows), block.threads_of_block()}),
              (masked_softmax_backward_rows<decltype(shape), T>), sizes,
              static_cast<Accumulator<T>>(scale), p, dp, ds);
  });
}

template <class T>
void probability_dropout_apply(const Cuda& cuda, const ProbabilitySizes& sizes,
                               const DropoutSource& source, const T* x, T* y) {
  if (sizes.keys == 0) return;
  // A thread makes the stream's key once, so it should draw many numbers.
  constexpr int kRowsOfWarp = 8;
  const auto aligned = [](const T* address) {
    return reinterpret_cast<uintptr_t>(address) % alignof(Quad<T>) == 0;
  };
  const bool whole = sizes.keys % kQuad == 0 && aligned(x) && aligned(y);
  const LaunchShape launch{grid_for(sizes.rows(), kDropoutRows * kRowsOfWarp),
                           dim3(kWarp, kDropoutRows)};
  XT_LAUNCH(cuda, launch, (drop_rows<T>), sizes, source, whole, x, y);
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
