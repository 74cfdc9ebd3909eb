#pragma once
// The kernels of attention_flash.

#include "core/dispatch.h"
#include "ops/attention/attention_dropout.h"
#include "ops/attention/attention_inputs.h"
#include "ops/attention/visible_keys.h"

namespace xtrain {

// Of [B, T, H, D] in elements; D is contiguous.
struct HeadStrides {
  int64_t batch, time, head;
};

struct FlashProblem {
  AttentionSizes sizes;
  double scale;
  VisibleKeys visible;
  bool drops;
  DropoutSource dropout;  // where it drops
  HeadStrides q, k, v;
};

// Where the gradient of q, k or v goes.
struct FlashGradient {
  void* data = nullptr;  // null: not wanted
  bool wide = false;     // elements are Accumulator<T>, else T
  bool accumulate = false;
  int64_t batch = 0, time = 0, head = 0, dim = 0;  // strides in elements
};

// o contiguous [B, Tq, H, D]; log_sum contiguous [B, H, Tq], +infinity for a row that sees nothing,
// so that exp(s - log_sum) is 0 there.
template <class T>
void flash_forward(const Cpu& cpu, const FlashProblem& problem, const T* q, const T* k, const T* v,
                   T* o, Accumulator<T>* log_sum);
template <class T>
void flash_forward(const Cuda& cuda, const FlashProblem& problem, const T* q, const T* k,
                   const T* v, T* o, Accumulator<T>* log_sum);

// dy contiguous like o.
template <class T>
void flash_backward(const Cpu& cpu, const FlashProblem& problem, const T* q, const T* k, const T* v,
                    const T* o, const Accumulator<T>* log_sum, const T* dy, const FlashGradient& dq,
                    const FlashGradient& dk, const FlashGradient& dv);
template <class T>
void flash_backward(const Cuda& cuda, const FlashProblem& problem, const T* q, const T* k,
                    const T* v, const T* o, const Accumulator<T>* log_sum, const T* dy,
                    const FlashGradient& dq, const FlashGradient& dk, const FlashGradient& dv);

}  // namespace xtrain
