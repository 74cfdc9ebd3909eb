#include <algorithm>

#include "core/cuda/launch.h"
#include "core/cuda/reduce.h"
#include "core/cuda/row_pipeline.h"
#include "core/cuda/sum.h"
#include "ops/norm/norm_affine_cuda.h"
#include "ops/norm/norm_kernels.h"

namespace xtrain {
namespace {

// Backward needs, besides the row at hand, two sums for each column: the gradients of weight and
// bias. They stay in the registers of one wave of blocks, each of which works through its own rows,
// and become one row of partial sums a block. That bounds the columns of a thread.
template <class T>
constexpr int words_of_columns(int packs) {  // of 4 bytes, for one such sum
  return packs * kPackSize<T> * static_cast<int>(sizeof(Accumulator<T>)) / 4;
}

// Threads that share the registers of a multiprocessor and leave each enough of them.
template <class T>
constexpr int resident_threads(int packs) {
  return words_of_columns<T>(packs) <= 8 ? 768 : words_of_columns<T>(packs) <= 16 ? 512 : 256;
}
// Of a block.
template <class T>
constexpr int most_threads(int packs) {
  return words_of_columns<T>(packs) <= 8 ? 256 : resident_threads<T>(packs);
}

template <class T>
RowBlock backward_block(int64_t width, bool whole) {
  constexpr int kWidePacks = std::min(kMostRowPacks, 32 / words_of_columns<T>(1));
  const bool one_warp = width <= kMostRowPacks * kPackSize<T> * kWarp;
  return row_block<T>(width, whole, one_warp ? kMostRowPacks : kWidePacks, most_threads<T>);
}

// A block's sums over its rows, column by column; rows too long for registers have them in memory.
template <class Shape>
class ColumnSums {
 public:
  using T = typename Shape::Element;
  using A = Accumulator<T>;
  using Column = typename Shape::Column;

  // Row blockIdx.x of `target`; null: the sums are not wanted.
  __device__ ColumnSums(const Shape& shape, A* target)
      : shape_(shape), target_(target ? target + int64_t{blockIdx.x} * shape.width : nullptr) {
    if constexpr (!Shape::kHeld) {
      shape_.for_packs([&](int, Column column) { store(column, Values<T>{}); });
    }
  }

  // Adds factor x to the sum of a column, for element i of a pack.
  __device__ void add(int p, Column column, int i, A factor, A x) {
    if constexpr (Shape::kHeld) {
      held_[p].at[i] += factor * x;
    } else if (target_ && shape_.contains(column + i)) {
      target_[column + i] += factor * x;
    }
  }

  // The rows that a block has at a time are added in their order.
  __device__ void write() {
    if constexpr (Shape::kHeld) {
      __shared__ Values<T> of_threads[kMostRowThreads];
      const int thread = threadIdx.y * blockDim.x + threadIdx.x;
      const int threads = blockDim.x * blockDim.y;
#pragma unroll
      for (int p = 0; p < Shape::kPacks; ++p) {
        of_threads[thread] = held_[p];
        __syncthreads();
        for (int other = thread + blockDim.x; threadIdx.y == 0 && other < threads;
             other += blockDim.x) {
#pragma unroll
          for (int i = 0; i < kPackSize<T>; ++i) held_[p].at[i] += of_threads[other].at[i];
        }
        __syncthreads();
      }
      if (threadIdx.y > 0) return;
      shape_.for_packs([&](int p, Column column) { store(column, held_[p]); });
    }
  }

 private:
  __device__ void store(Column column, const Values<T>& values) {
#pragma unroll
    for (int i = 0; i < kPackSize<T>; ++i) {
      if (target_ && shape_.contains(column + i)) target_[column + i] = values.at[i];
    }
  }

  Shape shape_;
  A* target_;
  Values<T> held_[Shape::kHeld ? Shape::kPacks : 1] = {};
};

template <class A>
struct Statistics {
  A mean = 0, rstd = 0;
};

template <class T>
__device__ Statistics<Accumulator<T>> saved_statistics(const NormBackward<T>& p, int64_t row) {
  if (row >= p.rows) return {};
  return {p.mean ? p.mean[row] : 0, p.rstd[row]};
}

// a b, rounded before anything is added to it: g - mean(g) is then 0 where all g are equal.
__device__ inline float rounded_product(float a, float b) {
  return __fmul_rn(a, b);
}
__device__ inline double rounded_product(double a, double b) {
  return __dmul_rn(a, b);
}

// Adds a row to the gradients of weight and bias, and gives the thread's part of its sums of g and
// of g x_hat, where g = dy w.
template <bool kCentered, class Shape, class XHat, class Dy, class Weight>
__device__ Several<typename ColumnSums<Shape>::A, 2> add_to_columns(const Shape& shape,
                                                                    const XHat& x_hat, const Dy& dy,
                                                                    const Weight& weight,
                                                                    ColumnSums<Shape>& dweight,
                                                                    ColumnSums<Shape>& dbias) {
  using T = typename Shape::Element;
  using A = Accumulator<T>;
  Several<A, 2> sums = {};
  shape.for_packs([&](int pack, typename Shape::Column column) {
    const Values<T> xs = x_hat.values(pack, column), slopes = dy.values(pack, column);
    const Values<T> w = weight.values(pack, column);
#pragma unroll
    for (int i = 0; i < kPackSize<T>; ++i) {
      dweight.add(pack, column, i, slopes.at[i], xs.at[i]);
      if (kCentered) dbias.add(pack, column, i, slopes.at[i], A{1});
      if (!shape.contains(column + i)) continue;
      const A g = rounded_product(slopes.at[i], w.at[i]);
      if (kCentered) sums.value[0] += g;
      sums.value[1] += g * xs.at[i];
    }
  });
  return sums;
}

template <bool kCentered, bool kRebuilds, bool kSums, class Shape, class T>
__global__ void __launch_bounds__(most_threads<T>(Shape::kPacks),
                                  resident_threads<T>(Shape::kPacks) /
                                      most_threads<T>(Shape::kPacks))
    norm_backward_rows(NormBackward<T> p) {
  begin_behind_others();
  using A = Accumulator<T>;
  using Column = typename Shape::Column;
  __shared__ Several<A, 2> scratch[kWarp];
  const Row weight(Shape(p.width), [&](int, Column column) {
    Values<T> values;
    for (A& v : values.at) v = A{1};
    return p.weight ? values_of(Shape(p.width).load(p.weight, column)) : values;
  });
  ColumnSums<Shape> dweight(Shape(p.width), p.dweight), dbias(Shape(p.width), p.dbias);
  ColumnSums<Shape> dx_sums(Shape(p.width), kSums ? p.dx_sums : nullptr);
  const A share = A{1} / static_cast<A>(p.width);
  RowPipeline<Shape, 3> rows(p.rows, p.width, {p.x, p.dy, p.dsum});
  auto following = saved_statistics(p, rows.following_row());
  while (rows.next()) {
    const Shape shape = rows.shape();
    const auto s = following;
    following = saved_statistics(p, rows.following_row());
    const Row x_hat(shape, [&](int pack, Column column) {
      Values<T> x = rows.values(0, pack, column);
#pragma unroll
      for (A& v : x.at) v = (kCentered ? v - s.mean : v) * s.rstd;
      return x;
    });
    const Row dy(shape, [&](int pack, Column column) { return rows.values(1, pack, column); });

    Several<A, 2> sums = {};
    if (rows.has_row()) sums = add_to_columns<kCentered>(shape, x_hat, dy, weight, dweight, dbias);
    if (!p.dx) continue;
    sums = block_reduce(sums, Add(), Several<A, 2>{}, scratch);
    if (!rows.has_row()) continue;
    const A mean_g = kCentered ? share * sums.value[0] : A{0}, mean_gx = share * sums.value[1];
    shape.for_packs([&](int pack, Column column) {
      const Values<T> xs = x_hat.values(pack, column), w = weight.values(pack, column);
      Values<T> dx = dy.values(pack, column);
#pragma unroll
      for (int i = 0; i < kPackSize<T>; ++i) {
        const A g = rounded_product(dx.at[i], w.at[i]);
        dx.at[i] = s.rstd * ((g - mean_g) - xs.at[i] * mean_gx);
      }
      if (p.dsum) {
        const Values<T> dsum = rows.values(2, pack, column);
#pragma unroll
        for (int i = 0; i < kPackSize<T>; ++i) dx.at[i] += dsum.at[i];
      }
      const Pack<T> stored = pack_of<T>(dx);
      shape.store(p.dx + rows.start(), column, stored);
      if constexpr (kSums) {
        const Values<T> terms = values_of(stored);
#pragma unroll
        for (int i = 0; i < kPackSize<T>; ++i) dx_sums.add(pack, column, i, A{1}, terms.at[i]);
      }
      if constexpr (kRebuilds) {
        shape.store(p.y + rows.start(), column,
                    affine_pack(shape, column, xs, p.weight, kCentered ? p.bias : nullptr));
      }
    });
  }
  dweight.write();
  dbias.write();
  if constexpr (kSums) dx_sums.write();
}

template <bool kCentered, bool kRebuilds, bool kSums, class T>
void launch_backward(const Cuda& cuda, const NormBackward<T>& p) {
  const bool whole = fits_packs(p.width, p.x, p.weight, p.bias, p.dy, p.dsum, p.dx, p.y);
  const RowBlock block = backward_block<T>(p.width, whole);
  const LaunchShape launch{grid_for(norm_row_blocks<T>(cuda, p.rows, p.width), 1),
                           block.threads_of_block(), pipeline_bytes(block, p.dsum ? 3 : 2)};
  with_row_shape<T>(block, [&](auto shape) {
    XT_LAUNCH_AHEAD(cuda, launch,
                    (norm_backward_rows<kCentered, kRebuilds, kSums, decltype(shape), T>), p);
  });
}

template <bool kCentered, bool kRebuilds, class T>
void launch_backward(const Cuda& cuda, const NormBackward<T>& p) {
  p.dx_sums ? launch_backward<kCentered, kRebuilds, true>(cuda, p)
            : launch_backward<kCentered, kRebuilds, false>(cuda, p);
}

}  // namespace

template <class T>
int64_t norm_row_blocks(const Cuda& cuda, int64_t rows, int64_t width) {
  if (width == 0) return 0;
  const RowBlock block = backward_block<T>(width, true);
  const int64_t of_multiprocessor =
      std::max(1, resident_threads<T>(block.packs) / (block.threads * block.rows));
  return std::min(ceil_div(rows, block.rows), gpu_of(cuda).multiprocessors * of_multiprocessor);
}

template <class T>
void norm_backward(const Cuda& cuda, const NormBackward<T>& p) {
  if (p.width == 0) return;
  if (p.kind == NormKind::layer) {
    p.y ? launch_backward<true, true>(cuda, p) : launch_backward<true, false>(cuda, p);
  } else {
    p.y ? launch_backward<false, true>(cuda, p) : launch_backward<false, false>(cuda, p);
  }
}

template <class A>
void sum_rows(const Cuda& cuda, int64_t rows, int64_t width, const RowSums<A>& first,
              const RowSums<A>& second) {
  if (!first.target) {
    if (second.target) sum_rows(cuda, rows, width, second, RowSums<A>());
    return;
  }
  const auto target = [](const RowSums<A>& sums) {
    return SumTarget<A>{sums.target, sums.stride, sums.accumulate};
  };
  sum_over_middle(cuda, MiddleSizes{1, rows, width},
                  SumPair<A, A>{{first.x, second.x}, {target(first), target(second)}});
}

#define XT_NORM(T)                                                    \
  template int64_t norm_row_blocks<T>(const Cuda&, int64_t, int64_t); \
  template void norm_backward(const Cuda&, const NormBackward<T>&);
XT_NORM(double)
XT_NORM(float)
XT_NORM(BFloat16)
#undef XT_NORM
template void sum_rows(const Cuda&, int64_t, int64_t, const RowSums<double>&,
                       const RowSums<double>&);
template void sum_rows(const Cuda&, int64_t, int64_t, const RowSums<float>&, const RowSums<float>&);

}  // namespace xtrain
