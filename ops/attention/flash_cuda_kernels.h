#pragma once
// The GPU kernels of attention_flash, and the choice between them.
//
// Every kernel computes the same function to the accuracy of its dtype: log_sum is the natural
// logarithm, rows that see nothing give o = 0 and log_sum = +infinity, the factors of dropout are
// those of AttentionDropout. So forward and backward may run on different kernels.

#include <string>

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
// mma.sync. wgmma: tensor cores by wgmma, fed by the copy engine. split_keys: few queries, the keys
// shared out over blocks.
enum class FlashKernel : uint8_t { ffma, mma, wgmma, split_keys };

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

// flash_wgmma_forward_cuda.cu and flash_wgmma_backward_cuda.cu. Supported: compute capability 9.0,
// head size 32, 64, 96, 128 or 256, tensors that can_be_mapped (core/cuda/hopper/tensor_map.h), a
// positive scale, no dropout. Gradients may have any strides. The obstacle is what a call would
// need, and what it has; empty where it is supported. Error where it is not.
std::string wgmma_obstacle(const Cuda& cuda, const FlashForward<BFloat16>& call);
std::string wgmma_obstacle(const Cuda& cuda, const FlashBackward<BFloat16>& call);
void wgmma_forward(const Cuda& cuda, const FlashForward<BFloat16>& call);
void wgmma_backward(const Cuda& cuda, const FlashBackward<BFloat16>& call);

// flash_split_keys_cuda.cu. Supported: at most 8 queries a key head, over all heads that share it;
// head size 4, 8, 16 or 32 times the elements of 16 bytes; every row of q, k and v at a multiple of
// 16 bytes; no dropout. A row's result does not depend on the other sequences of the batch, but on
// their number, which decides into how many parts the keys are split.
template <class T>
bool split_keys_supports(const FlashForward<T>& call);
template <class T>
void split_keys_forward(const Cuda& cuda, const FlashForward<T>& call);

}  // namespace xtrain
