#include "core/cuda/reduce.h"
#include "ops/linear/few_rows_linear_cuda.h"
#include "ops/norm/norm_affine_cuda.h"
#include "ops/norm_linear/norm_linear_kernels.h"

namespace xtrain {
namespace {

// The norm of x + branch, each step rounded as norm.h's kernels round it. The first block writes
// the sum.
template <bool kCentered, class T>
struct NormedRows {
  using A = Accumulator<T>;
  static constexpr int kVectors = 2;  // weight and bias
  NormForward<T> p;

  __device__ void fetch(int64_t width, T* memory) const {
    for_staged_packs<T>(width, [&](int64_t k) {
      if (p.weight) stage_pack(memory + k, load_pack_constant(p.weight + k));
      if (kCentered && p.bias) stage_pack(memory + width + k, load_pack_constant(p.bias + k));
    });
  }

  template <int kRows>
  __device__ void make(int m, int64_t width, T* rows) const {
    __shared__ Several<A, kRows> scratch[kWarp];
    const A share = A{1} / static_cast<A>(width);
    A first[kRows] = {};  // of each row: the mean is summed as differences to it
    Several<A, kRows> sums{};
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= m) break;
      if (kCentered) first[r] = values_of(input_pack(r * width)).at[0];
      for_staged_packs<T>(width, [&](int64_t k) {
        const Pack<T> pack = input_pack(r * width + k);
        stage_pack(rows + r * width + k, pack);
        if (p.branch && blockIdx.x == 0) store_pack(p.sum + r * width + k, pack);
        const Values<T> x = values_of(pack);
#pragma unroll
        for (int i = 0; i < kPackSize<T>; ++i) {
          sums.value[r] += kCentered ? x.at[i] - first[r] : x.at[i] * x.at[i];
        }
      });
    }
    sums = block_reduce(sums, Add(), Several<A, kRows>{}, scratch);
    A mean[kRows] = {};
    if constexpr (kCentered) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) mean[r] = first[r] + share * sums.value[r];
      sums =
          block_reduce(squares<kRows>(m, width, rows, mean), Add(), Several<A, kRows>{}, scratch);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= m) break;
      const A rstd = rsqrt(share * sums.value[r] + static_cast<A>(p.eps));
      for_staged_packs<T>(width, [&](int64_t k) {
        T* const at = rows + r * width + k;
        stage_pack(at, normed(values_of(load_pack(at)), mean[r], rstd, rows + m * width + k,
                              rows + (m + 1) * width + k));
      });
    }
  }

 private:
  __device__ Pack<T> input_pack(int64_t at) const {
    const Pack<T> pack = load_pack_l2(p.x + at);
    if (!p.branch) return pack;
    Values<T> x = values_of(pack);
    const Values<T> branch = values_of(load_pack_l2(p.branch + at));
#pragma unroll
    for (int i = 0; i < kPackSize<T>; ++i) x.at[i] += branch.at[i];
    return pack_of<T>(x);
  }

  // Of this thread's elements, centered.
  template <int kRows>
  static __device__ Several<A, kRows> squares(int m, int64_t width, const T* rows,
                                              const A (&mean)[kRows]) {
    Several<A, kRows> sums{};
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= m) break;
      for_staged_packs<T>(width, [&](int64_t k) {
        const Values<T> x = values_of(load_pack(rows + r * width + k));
#pragma unroll
        for (int i = 0; i < kPackSize<T>; ++i) {
          sums.value[r] += (x.at[i] - mean[r]) * (x.at[i] - mean[r]);
        }
      });
    }
    return sums;
  }

  __device__ Pack<T> normed(Values<T> x, A mean, A rstd, const T* weight, const T* bias) const {
#pragma unroll
    for (A& v : x.at) v = (v - mean) * rstd;
    if (p.weight) {
      const Values<T> w = values_of(load_pack(weight));
#pragma unroll
      for (int i = 0; i < kPackSize<T>; ++i) x.at[i] = rounded_product(x.at[i], w.at[i]);
    }
    if (kCentered && p.bias) {
      const Values<T> b = values_of(load_pack(bias));
#pragma unroll
      for (int i = 0; i < kPackSize<T>; ++i) x.at[i] += b.at[i];
    }
    return pack_of<T>(x);
  }
};

}  // namespace

template <class T>
void norm_linear_few_rows(const Cuda& cuda, const FewRowsLinear<T>& p, const NormForward<T>& norm) {
  if (norm.kind == NormKind::layer) {
    launch_linear_few_rows(cuda, p, NormedRows<true, T>{norm});
  } else {
    launch_linear_few_rows(cuda, p, NormedRows<false, T>{norm});
  }
}

#define XT_NORM_LINEAR(T) \
  template void norm_linear_few_rows(const Cuda&, const FewRowsLinear<T>&, const NormForward<T>&);
XT_NORM_LINEAR(double)
XT_NORM_LINEAR(float)
XT_NORM_LINEAR(BFloat16)
#undef XT_NORM_LINEAR

}  // namespace xtrain
