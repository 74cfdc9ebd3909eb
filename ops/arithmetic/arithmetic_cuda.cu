#include "core/cuda/elementwise.h"
#include "core/cuda/strided_cuda.h"
#include "ops/arithmetic/arithmetic_kernels.h"

namespace xtrain {
namespace {

// What the kernels compute at one place, in the accumulator type.
struct Sum {
  template <class A>
  __device__ A operator()(A a, A b) const {
    return a + b;
  }
};
struct Difference {
  template <class A>
  __device__ A operator()(A a, A b) const {
    return a - b;
  }
};
struct Product {
  template <class A>
  __device__ A operator()(A a, A b) const {
    return a * b;
  }
};
struct Quotient {
  template <class A>
  __device__ A operator()(A a, A b) const {
    return a / b;
  }
};
struct DivisorGradient {
  template <class A>
  __device__ A operator()(A dy, A a, A b) const {
    return -(dy / b) * (a / b);
  }
};
template <class A>
struct Scaled {
  A factor;
  __device__ A operator()(A x) const { return x * factor; }
};

// kCount neighbours of a dimension that lie side by side (stride 1) or are one element (stride 0).
template <int kCount, class T>
__device__ Elements<Accumulator<T>, kCount> load_row(const T* x, int64_t stride) {
  if (kCount == 1 || stride == 1) return load_elements<kCount>(x);
  Elements<Accumulator<T>, kCount> values;
  const auto repeated = static_cast<Accumulator<T>>(*x);
#pragma unroll
  for (int i = 0; i < kCount; ++i) values.at[i] = repeated;
  return values;
}

// The output lies in the order of the index.
template <int kCount, class F, class Out, class T, int kTensors>
__global__ void __launch_bounds__(kMapThreads)
    map_strided(F f, StridedIndex<kTensors> index, Inputs<T, kTensors> x, Out* y) {
  const int64_t step = int64_t{gridDim.x} * kMapThreads * kCount;
  for (int64_t i = (int64_t{blockIdx.x} * kMapThreads + threadIdx.x) * kCount; i < index.count;
       i += step) {
    int64_t at[kTensors];
    index.offsets(i, at);
    Elements<Accumulator<T>, kCount> in[kTensors];
#pragma unroll
    for (int t = 0; t < kTensors; ++t) {
      in[t] =
          load_row<kCount>(x.data[t] + at[t], index.rank > 0 ? index.stride[t][index.rank - 1] : 0);
    }
    store_elements(y + i, apply(f, in, std::make_index_sequence<kTensors>()));
  }
}

// Whether tensor t can be read a pack at a time, or is repeated, along the last dimension.
template <class T, int kTensors>
bool rows_fit_packs(const StridedIndex<kTensors>& index, int t, const T* x) {
  if (index.rank == 0) return false;
  const int64_t last = index.stride[t][index.rank - 1];
  if (last == 0) return true;
  bool fits = last == 1 && fits_packs(0, x);
  for (int d = 0; d + 1 < index.rank; ++d) fits = fits && index.stride[t][d] % kPackSize<T> == 0;
  return fits;
}

// y = f(inputs...), element by element of `shape`.
template <class F, class Out, class T, class... Rest>
void map_inputs(const Cuda& cuda, F f, const Shape& shape, Out* y, const StridedInput<T>& x,
                const Rest&... rest) {
  constexpr int kTensors = 1 + sizeof...(Rest), kCount = kPackSize<T>;
  const StridedIndex<kTensors> index(shape, {x.strides, rest.strides...});
  const Inputs<T, kTensors> inputs{{x.data, rest.data...}};
  bool flat = true, packs = fits_packs(0, y);
  for (int t = 0; t < kTensors; ++t) {
    flat = flat && index.is_flat(t);
    packs = packs && rows_fit_packs(index, t, inputs.data[t]);
  }
  if (flat) return map(cuda, f, index.count, y, x.data, rest.data...);
  packs = packs && index.size[index.rank - 1] % kCount == 0;
  const int count = packs ? kCount : 1;
  XT_LAUNCH(
      cuda, (LaunchShape{grid_for(index.count, kMapThreads * count), kMapThreads}),
      (packs ? map_strided<kCount, F, Out, T, kTensors> : map_strided<1, F, Out, T, kTensors>), f,
      index, inputs, y);
}

template <class F>
void with_kind(Arithmetic kind, F&& f) {
  switch (kind) {
    case Arithmetic::add:
      return f(Sum{});
    case Arithmetic::sub:
      return f(Difference{});
    case Arithmetic::mul:
      return f(Product{});
    case Arithmetic::div:
      return f(Quotient{});
  }
}

}  // namespace

template <class T, class Out>
void arithmetic_forward(const Cuda& cuda, Arithmetic kind, const Shape& shape, StridedInput<T> a,
                        StridedInput<T> b, Out* y) {
  with_kind(kind, [&](auto f) { map_inputs(cuda, f, shape, y, a, b); });
}

template <class T, class Out>
void div_backward_divisor(const Cuda& cuda, const Shape& shape, StridedInput<T> dy,
                          StridedInput<T> a, StridedInput<T> b, Out* db) {
  map_inputs(cuda, DivisorGradient{}, shape, db, dy, a, b);
}

template <class T>
void scale_forward(const Cuda& cuda, int64_t n, const T* x, double factor, T* y) {
  using A = Accumulator<T>;
  map(cuda, Scaled<A>{static_cast<A>(factor)}, n, y, x);
}

#define XT_ARITHMETIC(T, Out)                                                                     \
  template void arithmetic_forward(const Cuda&, Arithmetic, const Shape&, StridedInput<T>,        \
                                   StridedInput<T>, Out*);                                        \
  template void div_backward_divisor(const Cuda&, const Shape&, StridedInput<T>, StridedInput<T>, \
                                     StridedInput<T>, Out*);
XT_ARITHMETIC(double, double)
XT_ARITHMETIC(float, float)
XT_ARITHMETIC(BFloat16, BFloat16)
XT_ARITHMETIC(BFloat16, float)
#undef XT_ARITHMETIC

template void scale_forward(const Cuda&, int64_t, const double*, double, double*);
template void scale_forward(const Cuda&, int64_t, const float*, double, float*);
template void scale_forward(const Cuda&, int64_t, const BFloat16*, double, BFloat16*);

}  // namespace xtrain
