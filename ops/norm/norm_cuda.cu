#include <algorithm>

#include "core/cuda/launch.h"
#include "core/cuda/reduce.h"
#include "core/cuda/row.h"
#include "core/cuda/sum.h"
#include "ops/norm/norm_kernels.h"

namespace xtrain {
namespace {

template <class A>
struct Statistics {
  A mean = 0, rstd = 0;

  __device__ A normalized(A x) const { return (x - mean) * rstd; }
};

// Two passes. The mean is summed as differences to the first element: these are small where the
// spread is, and 0 in a constant row, whose variance is then exactly 0.
template <class Shape, class A>
__device__ Statistics<A> statistics_of(const Shape& shape, const Row<Shape>& x, A first,
                                       bool centered, double eps, A* scratch) {
  const A count = static_cast<A>(shape.width);
  A mean = 0, squares = 0;
  if (centered) {
    A differences = 0;
    x.for_elements([&](A v) { differences += v - first; });
    mean = first + block_reduce(differences, Add(), A{0}, scratch) / count;
  }
  x.for_elements([&](A v) { squares += (v - mean) * (v - mean); });
  squares = block_reduce(squares, Add(), A{0}, scratch);
  return {mean, A{1} / sqrt(squares / count + static_cast<A>(eps))};
}

template <class Shape, class T, class A>
__device__ void normalize_row(const NormForward<T>& p, const Shape& shape, int64_t row,
                              A* scratch) {
  const bool centered = p.kind == NormKind::layer, inside = shape.width > 0;
  const int64_t start = row * p.width;
  A first = centered && inside ? static_cast<A>(p.x[start]) : A{0};
  Row<Shape> x(shape, p.x + start);
  if (p.branch) {
    const Row<Shape> branch(shape, p.branch + start);
    if (centered && inside) first = static_cast<T>(first + static_cast<A>(p.branch[start]));
    x.replace(p.sum + start, [&](int pack, auto column) {
      Values<T> sum = x.values(pack, column);
      const Values<T> added = branch.values(pack, column);
#pragma unroll
      for (int i = 0; i < kPackSize<T>; ++i) sum.at[i] += added.at[i];
      return sum;
    });
  }
  const Statistics<A> s = statistics_of(shape, x, first, centered, p.eps, scratch);
  const Row<Shape> weight(shape, p.weight), bias(shape, p.bias);
  shape.for_packs([&](int pack, auto column) {
    Values<T> y = x.values(pack, column);
    const Values<T> w = weight.values(pack, column), b = bias.values(pack, column);
#pragma unroll
    for (int i = 0; i < kPackSize<T>; ++i) {
      y.at[i] = s.normalized(y.at[i]);
      if (p.weight) y.at[i] *= w.at[i];
      if (p.bias) y.at[i] += b.at[i];
    }
    shape.store(p.y + start, column, pack_of<T>(y));
  });
  if (threadIdx.x == 0 && inside) {
    if (p.mean) p.mean[row] = s.mean;
    p.rstd[row] = s.rstd;
  }
}

template <class Shape, class T>
__global__ void __launch_bounds__(kMostRowThreads) normalize_rows(NormForward<T> p) {
  __shared__ Accumulator<T> scratch[kWarp];
  const int64_t stride = int64_t{gridDim.x} * blockDim.y;
  for (int64_t begin = int64_t{blockIdx.x} * blockDim.y; begin < p.rows; begin += stride) {
    const int64_t row = begin + threadIdx.y;
    normalize_row(p, Shape(p.width, row, p.rows), row, scratch);
  }
}

}  // namespace

template <class T>
void norm_forward(const Cuda& cuda, const NormForward<T>& p) {
  if (p.width == 0) return;
  const bool whole = fits_packs(p.width, p.x, p.branch, p.sum, p.weight, p.bias, p.y);
  const RowBlock block = row_block<T>(p.width, whole);
  with_row_shape<T>(block, whole, [&](auto shape) {
    XT_LAUNCH(cuda, (LaunchShape{grid_for(p.rows, block.rows), block.threads_of_block()}),
              (normalize_rows<decltype(shape), T>), p);
  });
}

namespace {

// Backward needs, besides the row at hand, two sums for each column: the gradients of weight and
// bias. They stay in registers of one wave of blocks, each of which works through its own rows, and
// become one row of partial sums a block. The rows themselves wait in shared memory, the next ones
// on their way there. A thread has few columns, and narrow rows share a block.
constexpr int kBackwardThreads = 512;
constexpr int kStages = 2;  // rows of a thread that are in shared memory or on their way

template <class T>
RowBlock backward_block(int64_t width) {
  constexpr int kMostPacks = 4;
  const int64_t packs = ceil_div(width, kPackSize<T>);
  for (int held = 1; held <= kMostPacks; held *= 2) {
    const int threads = static_cast<int>(ceil_div(ceil_div(packs, held), kWarp) * kWarp);
    if (threads <= kBackwardThreads) return {held, threads, kBackwardThreads / threads};
  }
  return {0, kBackwardThreads, 1};
}

constexpr int blocks_of_multiprocessor(int packs) {
  return packs == 1 ? 2 : 1;
}

// A block's sums over its rows, column by column; rows too long for registers have them in memory.
template <class Shape, class A>
class ColumnSums {
 public:
  using T = typename Shape::Element;

  // Row blockIdx.x of `target`; null: the sums are not wanted.
  __device__ ColumnSums(const Shape& shape, A* target)
      : shape_(shape), target_(target ? target + int64_t{blockIdx.x} * shape.width : nullptr) {
    if constexpr (Shape::kPacks == 0) {
      shape_.for_packs([&](int, auto column) { store(column, Values<T>{}); });
    }
  }

  __device__ void add(int pack, typename Shape::Column column, const Values<T>& values) {
#pragma unroll
    for (int i = 0; i < kPackSize<T>; ++i) {
      if constexpr (Shape::kPacks > 0) {
        held_[pack].at[i] += values.at[i];
      } else if (target_ && shape_.contains(column + i)) {
        target_[column + i] += values.at[i];
      }
    }
  }

  // The rows that a block has at a time are added in their order.
  __device__ void write() {
    if constexpr (Shape::kPacks == 0) return;
    __shared__ Values<T> of_threads[kBackwardThreads];
    const int thread = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
    for (int pack = 0; pack < Shape::kPacks; ++pack) {
      of_threads[thread] = held_[pack];
      __syncthreads();
      for (int other = thread + blockDim.x; threadIdx.y == 0 && other < blockDim.x * blockDim.y;
           other += blockDim.x) {
#pragma unroll
        for (int i = 0; i < kPackSize<T>; ++i) held_[pack].at[i] += of_threads[other].at[i];
      }
      __syncthreads();
    }
    if (threadIdx.y > 0) return;
    shape_.for_packs([&](int pack, auto column) { store(column, held_[pack]); });
  }

 private:
  __device__ void store(typename Shape::Column column, const Values<T>& values) {
#pragma unroll
    for (int i = 0; i < kPackSize<T>; ++i) {
      if (target_ && shape_.contains(column + i)) target_[column + i] = values.at[i];
    }
  }

  Shape shape_;
  A* target_;
  Values<T> held_[Shape::kPacks > 0 ? Shape::kPacks : 1] = {};
};

// What the backward of a row reads.
template <class Shape>
struct BackwardRow {
  using T = typename Shape::Element;
  static constexpr int kRows = 3;

  Shape shape;
  StagedRow<Shape> x, dy, dsum;

  __device__ BackwardRow(const NormBackward<T>& p, int64_t row, Pack<T>* slots)
      : shape(p.width, row, p.rows),
        x(shape, p.x + row * p.width, slots),
        dy(shape, p.dy + row * p.width, slots + slots_of_row()),
        dsum(shape, p.dsum ? p.dsum + row * p.width : nullptr, slots + 2 * slots_of_row()) {}

  static __device__ int slots_of_row() { return Shape::kPacks * blockDim.x * blockDim.y; }

  __device__ void fetch() const {
    x.fetch();
    dy.fetch();
    dsum.fetch();
    commit_copies();
  }
};

template <class T>
__device__ Statistics<Accumulator<T>> saved_statistics(const NormBackward<T>& p, int64_t row) {
  Statistics<Accumulator<T>> s;
  if (row >= p.rows) return s;
  if (p.mean) s.mean = p.mean[row];
  s.rstd = p.rstd[row];
  return s;
}

// Adds the row to the sums of the columns; returns the thread's share of the row's sums of g and
// g x_hat, where g = dy w.
template <class Shape, class A>
__device__ Several<A, 2> add_row(const BackwardRow<Shape>& r, const Statistics<A>& s,
                                 const Row<Shape>& weight, ColumnSums<Shape, A>& dweight,
                                 ColumnSums<Shape, A>& dbias) {
  using T = typename Shape::Element;
  Several<A, 2> sums = {};
  r.shape.for_packs([&](int pack, auto column) {
    const Values<T> x = r.x.values(pack, column), w = weight.values(pack, column);
    const Values<T> dy = r.dy.values(pack, column);
    Values<T> dy_x_hat;
#pragma unroll
    for (int i = 0; i < kPackSize<T>; ++i) {
      const A x_hat = s.normalized(x.at[i]);
      const A g = weight.given() ? dy.at[i] * w.at[i] : dy.at[i];
      dy_x_hat.at[i] = dy.at[i] * x_hat;
      if (!r.shape.contains(column + i)) continue;
      sums.value[0] += g;
      sums.value[1] += g * x_hat;
    }
    dweight.add(pack, column, dy_x_hat);
    dbias.add(pack, column, dy);
  });
  return sums;
}

template <class Shape, class T, class A>
__device__ void write_dx(const NormBackward<T>& p, const BackwardRow<Shape>& r,
                         const Statistics<A>& s, const Row<Shape>& weight,
                         const Several<A, 2>& sums, int64_t row) {
  const A count = static_cast<A>(p.width);
  const A mean_g = p.kind == NormKind::layer ? sums.value[0] / count : A{0};
  const A mean_gx = sums.value[1] / count;
  r.shape.for_packs([&](int pack, auto column) {
    const Values<T> x = r.x.values(pack, column), w = weight.values(pack, column);
    const Values<T> dsum = r.dsum.values(pack, column);
    Values<T> dx = r.dy.values(pack, column);
#pragma unroll
    for (int i = 0; i < kPackSize<T>; ++i) {
      const A g = weight.given() ? dx.at[i] * w.at[i] : dx.at[i];
      dx.at[i] = s.rstd * (g - mean_g - s.normalized(x.at[i]) * mean_gx);
      if (r.dsum.given()) dx.at[i] += dsum.at[i];
    }
    r.shape.store(p.dx + row * p.width, column, pack_of<T>(dx));
  });
}

template <class Shape, class T>
__global__ void __launch_bounds__(kBackwardThreads, blocks_of_multiprocessor(Shape::kPacks))
    norm_backward_rows(NormBackward<T> p) {
  using A = Accumulator<T>;
  extern __shared__ uint4 staged[];
  __shared__ Several<A, 2> scratch[kWarp];
  const Shape shape(p.width);
  const Row<Shape> weight(shape, p.weight);
  ColumnSums<Shape, A> dweight(shape, p.dweight), dbias(shape, p.dbias);
  const int64_t stride = int64_t{gridDim.x} * blockDim.y;
  const auto row_at = [&](int64_t row, int stage) {
    using R = BackwardRow<Shape>;
    Pack<T>* slots = reinterpret_cast<Pack<T>*>(staged) + threadIdx.y * blockDim.x + threadIdx.x;
    return R(p, row, slots + stage * R::kRows * R::slots_of_row());
  };
  int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  for (int stage = 0; stage + 1 < kStages; ++stage) row_at(row + stage * stride, stage).fetch();
  Statistics<A> next = saved_statistics(p, row);
  int stage = 0;
  for (int64_t begin = int64_t{blockIdx.x} * blockDim.y; begin < p.rows; begin += stride) {
    row_at(row + (kStages - 1) * stride, (stage + kStages - 1) % kStages).fetch();
    wait_for_copies<kStages - 1>();
    const BackwardRow<Shape> current = row_at(row, stage);
    const Statistics<A> s = next;
    next = saved_statistics(p, row + stride);
    Several<A, 2> sums = add_row(current, s, weight, dweight, dbias);
    if (p.dx) {
      sums = block_reduce(sums, Add(), Several<A, 2>{}, scratch);
      write_dx(p, current, s, weight, sums, row);
    }
    row += stride;
    stage = (stage + 1) % kStages;
  }
  dweight.write();
  dbias.write();
}

}  // namespace

template <class T>
int64_t norm_row_blocks(const Cuda& cuda, int64_t rows, int64_t width) {
  const RowBlock block = backward_block<T>(width);
  const int64_t wave = gpu_of(cuda).multiprocessors * blocks_of_multiprocessor(block.packs);
  return std::min(ceil_div(rows, block.rows), wave);
}

template <class T>
void norm_backward(const Cuda& cuda, const NormBackward<T>& p) {
  if (p.width == 0) return;
  const bool whole = fits_packs(p.width, p.x, p.weight, p.dy, p.dsum, p.dx);
  const RowBlock block = backward_block<T>(p.width);
  const dim3 grid(static_cast<unsigned>(norm_row_blocks<T>(cuda, p.rows, p.width)));
  with_row_shape<T>(block, whole, [&](auto shape) {
    constexpr int kSlots = kStages * BackwardRow<decltype(shape)>::kRows * decltype(shape)::kPacks;
    const int64_t staged = int64_t{kSlots} * block.threads * block.rows * sizeof(Pack<T>);
    XT_LAUNCH(cuda, (LaunchShape{grid, block.threads_of_block(), staged}),
              (norm_backward_rows<decltype(shape), T>), p);
  });
}

template <class A>
void sum_rows(const Cuda& cuda, int64_t rows, int64_t width, const A* x, bool accumulate, A* target,
              int64_t stride) {
  sum_over_middle(cuda, {1, rows, width}, x, SumTarget<A>{target, stride, accumulate});
}

#define XT_NORM(T)                                                    \
  template void norm_forward(const Cuda&, const NormForward<T>&);     \
  template int64_t norm_row_blocks<T>(const Cuda&, int64_t, int64_t); \
  template void norm_backward(const Cuda&, const NormBackward<T>&);
XT_NORM(double)
XT_NORM(float)
XT_NORM(BFloat16)
#undef XT_NORM
template void sum_rows(const Cuda&, int64_t, int64_t, const double*, bool, double*, int64_t);
template void sum_rows(const Cuda&, int64_t, int64_t, const float*, bool, float*, int64_t);

}  // namespace xtrain
