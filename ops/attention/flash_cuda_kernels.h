#pragma once
// The GPU kernels of attention_flash, and the choice between them.
//
// Every kernel computes the same function to the accuracy of its dtype: log_sum is the natural
// logarithm, rows that see nothing give o = 0 and log_sum = +infinity, the factors of dropout are
// those of AttentionDropout. So forward and backward may run on different kernels.

#include "ops/attention/flash_kernels.h"

namespace xtrain {

// As flash_forward and flash_backward of flash_kernels.h take them; passed to kernels by value.
template <class T>
struct FlashForward {
  FlashProblem problem;
  const T *q, *k, *v;
  T* o;
  Accumulator<T>* log_sum;
};

template <class T>
struct FlashBackward {
  FlashProblem problem;
  const T *q, *k, *v, *o;
  const Accumulator<T>* log_sum;
  const T* dy;
  FlashGradient dq, dk, dv;
};

// ffma: the ordinary arithmetic units; every dtype, head size and layout. mma: tensor cores by
// mma.sync. wgmma: tensor cores by wgmma, fed by the copy engine.
enum class FlashKernel : uint8_t { ffma, mma, wgmma };

// The kernel that flash_forward or flash_backward runs for this call.
template <class T>
FlashKernel flash_kernel(const Cuda& cuda, const FlashForward<T>& call);
template <class T>
FlashKernel flash_kernel(const Cuda& cuda, const FlashBackward<T>& call);

// flash_ffma_cuda.cu
template <class T>
void ffma_forward(const Cuda& cuda, const FlashForward<T>& call);
template <class T>
void ffma_backward(const Cuda& cuda, const FlashBackward<T>& call);

// flash_mma_forward_cuda.cu and flash_mma_backward_cuda.cu. Supported: compute capability 8.0 or
// later, head size 32, 64, 96, 128 or 256, every row of q, k, v, o and dy at a multiple of 16
// bytes. Gradients may have any strides.
bool mma_supports(const Cuda& cuda, const FlashForward<BFloat16>& call);
bool mma_supports(const Cuda& cuda, const FlashBackward<BFloat16>& call);
void mma_forward(const Cuda& cuda, const FlashForward<BFloat16>& call);
void mma_backward(const Cuda& cuda, const FlashBackward<BFloat16>& call);

// flash_wgmma_forward_cuda.cu and flash_wgmma_backward_cuda.cu. Supported: compute capability 9.x,
// head size 32, 64, 96, 128 or 256, tensors that can_be_mapped (core/cuda/hopper/tensor_map.h), a
// positive scale, no dropout. Gradients may have any strides.
bool wgmma_supports(const Cuda& cuda, const FlashForward<BFloat16>& call);
bool wgmma_supports(const Cuda& cuda, const FlashBackward<BFloat16>& call);
void wgmma_forward(const Cuda& cuda, const FlashForward<BFloat16>& call);
void wgmma_backward(const Cuda& cuda, const FlashBackward<BFloat16>& call);

}  // namespace xtrain
