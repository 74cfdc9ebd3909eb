#include "core/cuda/launch.h"
#include "core/cuda/reduce.h"
#include "core/cuda/row.h"
#include "ops/norm/norm_affine_cuda.h"
#include "ops/norm/norm_kernels.h"

namespace xtrain {
namespace {

// Statistics take two walks over the row. The mean is summed as differences to the first element:
// these are small where the spread is, and 0 in a constant row, whose variance is then exactly 0.
// Weight and bias are read where they are used: the caches have them, and registers are better left
// to more rows.
template <bool kCentered, bool kAdd, class Shape, class T>
__global__ void __launch_bounds__(kMostRowThreads, kAdd ? 1 : 2) normalize_rows(NormForward<T> p) {
  begin_behind_others();
  using A = Accumulator<T>;
  using Column = typename Shape::Column;
  __shared__ A scratch[kWarp];
  const A share = A{1} / static_cast<A>(p.width), eps = static_cast<A>(p.eps);
  for_rows<Shape>(p.rows, p.width, [&](const Shape& shape, int64_t row, bool inside) {
    const int64_t start = row * p.width;
    // What is normalised, rounded to T.
    const auto input = [&](A x, A branch) {
      return kAdd ? static_cast<A>(static_cast<T>(x + branch)) : x;
    };
    const Row x(shape, [&](int, Column column) {
      Values<T> values = values_of(shape.load(p.x + start, column));
      if constexpr (kAdd) {
        const Values<T> branch = values_of(shape.load(p.branch + start, column));
#pragma unroll
        for (int i = 0; i < kPackSize<T>; ++i) values.at[i] += branch.at[i];
        values = values_of(pack_of<T>(values));
      }
      return values;
    });
    A mean = 0, squares = 0;
    if constexpr (kCentered) {
      const A first = input(p.x[start], kAdd ? p.branch[start] : T(0));
      x.for_elements([&](A v) { mean += v - first; });
      mean = first + share * block_reduce(mean, Add(), A{0}, scratch);
    }
    x.for_elements([&](A v) { squares += (v - mean) * (v - mean); });
    const A rstd = rsqrt(share * block_reduce(squares, Add(), A{0}, scratch) + eps);
    if (!inside) return;
    shape.for_packs([&](int pack, Column column) {
      Values<T> y = x.values(pack, column);
      if constexpr (kAdd) shape.store(p.sum + start, column, pack_of<T>(y));
#pragma unroll
      for (A& v : y.at) v = (v - mean) * rstd;
      shape.store(p.y + start, column,
                  affine_pack(shape, column, y, p.weight, kCentered ? p.bias : nullptr));
    });
    if (threadIdx.x == 0) {
      if (kCentered) p.mean[row] = mean;
      p.rstd[row] = rstd;
    }
  });
}

template <bool kCentered, bool kAdd, class T>
void launch_forward(const Cuda& cuda, const NormForward<T>& p) {
  const bool whole = fits_packs(p.width, p.x, p.branch, p.sum, p.weight, p.bias, p.y);
  const RowBlock block = row_block<T>(p.width, whole);
  with_row_shape<T>(block, [&](auto shape) {
    XT_LAUNCH_AHEAD(cuda, (LaunchShape{grid_for(p.rows, block.rows), block.threads_of_block()}),
                    (normalize_rows<kCentered, kAdd, decltype(shape), T>), p);
  });
}

}  // namespace

template <class T>
void norm_forward(const Cuda& cuda, const NormForward<T>& p) {
  if (p.width == 0) return;
  if (p.kind == NormKind::layer) {
    p.branch ? launch_forward<true, true>(cuda, p) : launch_forward<true, false>(cuda, p);
  } else {
    p.branch ? launch_forward<false, true>(cuda, p) : launch_forward<false, false>(cuda, p);
  }
}

template void norm_forward(const Cuda&, const NormForward<double>&);
template void norm_forward(const Cuda&, const NormForward<float>&);
template void norm_forward(const Cuda&, const NormForward<BFloat16>&);

}  // namespace xtrain
