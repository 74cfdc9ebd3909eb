#pragma once
// y = x weight^T + bias for few rows of x that come from a function of tensors, such as a norm:
// each block makes all of x in its shared memory. What it reads of the weights is on its way by
// then, and there is neither a kernel for x nor a tensor.

#include <type_traits>

#include "core/cuda/few_rows.h"
#include "ops/linear/linear_kernels.h"

namespace xtrain {

static_assert(kMostLinearRows == kMostFewRows);

// A pack into shared memory.
template <class T>
__device__ void stage_pack(T* to, const Pack<T>& pack) {
  *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(&pack);
}

// f(k) for the elements k of a row with which this thread's packs begin.
template <class T, class F>
__device__ void for_staged_packs(int64_t width, F&& f) {
  for (int64_t k = int64_t{threadIdx.x} * kPackSize<T>; k < width; k += blockDim.x * kPackSize<T>) {
    f(k);
  }
}

// What makes the rows is an object with
//
//   kVectors                 lines of k elements that it keeps behind the rows
//   fetch(k, memory)         weights into those lines; the kernels before this may still run
//   make<kRows>(m, k, rows)  rows [m, k]; each thread may read back its own packs only
template <int kRows, int kWarps, class T, class Maker>
__global__ void __launch_bounds__(kWarps* kWarp, kRows == 1 ? 3 : 1)
    linear_few_rows(const __grid_constant__ FewRowsLinear<T> p, const __grid_constant__ Maker maker,
                    int warps_of_column) {
  using A = Accumulator<T>;
  extern __shared__ uint4 memory[];
  T* const rows = reinterpret_cast<T*>(memory);
  const int m = static_cast<int>(p.rows);
  let_next_begin();
  FewRowsColumn<kRows, kWarps, T> product(
      MatrixLines<T>{p.weight, p.ld, p.out, p.in, warps_of_column});
  const A bias = p.bias && product.inside() ? static_cast<A>(p.bias[product.column()]) : A{0};
  maker.fetch(p.in, rows + m * p.in);
  await_kernels_before();
  maker.template make<kRows>(m, p.in, rows);
  __syncthreads();
  product.multiply(m, [&](int r, int64_t k) { return load_pack(rows + r * p.in + k); });
  product.store(m, [&](int r, int64_t column, A sum) {
    p.y[r * p.out + column] = static_cast<T>(sum + bias);
  });
}

template <class T, class Maker>
void launch_linear_few_rows(const Cuda& cuda, const FewRowsLinear<T>& p, const Maker& maker) {
  constexpr int kWarps = 16, kResident = 24;
  const int warps = warps_of_line<T>(cuda, p.out, p.in, kWarps, kResident);
  const int64_t bytes = (p.rows + Maker::kVectors) * p.in * static_cast<int64_t>(sizeof(T));
  with_room_for_rows(p.rows, [&](auto rows) {
    XT_LAUNCH_EARLY(cuda, (LaunchShape{grid_for(p.out, kWarps / warps), kWarps * kWarp, bytes}),
                    (linear_few_rows<rows.value, kWarps, T, Maker>), p, maker, warps);
  });
}

}  // namespace xtrain
