// Flash attention on the GPU: which kernel runs.

#include <type_traits>

#include "ops/attention/flash_cuda_kernels.h"

namespace xtrain {

template <class T>
FlashKernel flash_kernel(const Cuda& cuda, const FlashForward<T>& call) {
  if (split_keys_supports(call)) return FlashKernel::split_keys;
  if constexpr (std::is_same_v<T, BFloat16>) {
    if (wgmma_obstacle(cuda, call).empty()) return FlashKernel::wgmma;
    if (mma_supports(cuda, call)) return FlashKernel::mma;
  }
  return FlashKernel::ffma;
}

template <class T>
FlashKernel flash_kernel(const Cuda& cuda, const FlashBackward<T>& call) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    if (wgmma_obstacle(cuda, call).empty()) return FlashKernel::wgmma;
    if (mma_supports(cuda, call)) return FlashKernel::mma;
  }
  return FlashKernel::ffma;
}

template <class T>
void flash_forward(const Cuda& cuda, const FlashProblem& problem, const T* q, const T* k,
                   const T* v, T* o, Accumulator<T>* log_sum) {
  const FlashForward<T> call{problem, q, k, v, o, log_sum};
  switch (flash_kernel(cuda, call)) {
    case FlashKernel::wgmma:
      if constexpr (std::is_same_v<T, BFloat16>) wgmma_forward(cuda, call);
      break;
    case FlashKernel::mma:
      if constexpr (std::is_same_v<T, BFloat16>) mma_forward(cuda, call);
      break;
    case FlashKernel::ffma:
      ffma_forward(cuda, call);
      break;
    case FlashKernel::split_keys:
      split_keys_forward(cuda, call);
      break;
  }
}

template <class T>
void flash_backward(const Cuda& cuda, const FlashProblem& problem, const T* q, const T* k,
                    const T* v, const T* o, const Accumulator<T>* log_sum, const T* dy,
                    const FlashGradient& dq, const FlashGradient& dk, const FlashGradient& dv) {
  const FlashBackward<T> call{problem, q, k, v, o, log_sum, dy, dq, dk, dv};
  switch (flash_kernel(cuda, call)) {
    case FlashKernel::wgmma:
      if constexpr (std::is_same_v<T, BFloat16>) wgmma_backward(cuda, call);
      break;
    case FlashKernel::mma:
      if constexpr (std::is_same_v<T, BFloat16>) mma_backward(cuda, call);
      break;
    case FlashKernel::split_keys:  // has no backward pass
    case FlashKernel::ffma:
      ffma_backward(cuda, call);
      break;
  }
}

#define XT_FLASH(T)                                                                               \
  template FlashKernel flash_kernel(const Cuda&, const FlashForward<T>&);                         \
  template FlashKernel flash_kernel(const Cuda&, const FlashBackward<T>&);                        \
  template void flash_forward(const Cuda&, const FlashProblem&, const T*, const T*, const T*, T*, \
                              Accumulator<T>*);                                                   \
  template void flash_backward(const Cuda&, const FlashProblem&, const T*, const T*, const T*,    \
                               const T*, const Accumulator<T>*, const T*, const FlashGradient&,   \
                               const FlashGradient&, const FlashGradient&);
XT_FLASH(double)
XT_FLASH(float)
XT_FLASH(BFloat16)
#undef XT_FLASH

}  // namespace xtrain
