#pragma once
// The kernels of qk_norm_rope.h over tokens. Rows of y and dy lie one behind the other, rows of x
// and dx at a stride: they are part of wider rows.

#include "core/dispatch.h"
#include "ops/qk_norm_rope/qk_norm_rope.h"
#include "ops/rope/rope_kernels.h"

namespace xtrain {

template <class T>
struct QkNormRopeForward {
  QkNormRope options;
  int64_t tokens;
  const T* x;
  int64_t x_stride;              // from one token to the next
  const T *q_weight, *k_weight;  // null: no norm
  TokenAngles<Accumulator<T>> angles;
  T* y;
  Accumulator<T>* rstd;  // [tokens, H + KV]; null without norm
};

template <class T>
void qk_norm_rope_forward(const Cpu& cpu, const QkNormRopeForward<T>& p);
template <class T>
void qk_norm_rope_forward(const Cuda& cuda, const QkNormRopeForward<T>& p);

template <class T>
struct QkNormRopeBackward {
  QkNormRope options;
  int64_t tokens;
  const T* x;  // null without norm
  int64_t x_stride;
  const T *q_weight, *k_weight;
  TokenAngles<Accumulator<T>> angles;
  const Accumulator<T>* rstd;
  const T* dy;
  T* dx;  // null: not wanted
  int64_t dx_stride;
  // The sums over each block of tokens, [qk_token_blocks(tokens), D]; null: not wanted.
  Accumulator<T>*dq_weight, *dk_weight;
};

// Into how many blocks the tokens are cut for the gradients of the weights.
int64_t qk_token_blocks(const Cpu& cpu, int64_t tokens);
int64_t qk_token_blocks(const Cuda& cuda, int64_t tokens);

template <class T>
void qk_norm_rope_backward(const Cpu& cpu, const QkNormRopeBackward<T>& p);
template <class T>
void qk_norm_rope_backward(const Cuda& cuda, const QkNormRopeBackward<T>& p);

}  // namespace xtrain
