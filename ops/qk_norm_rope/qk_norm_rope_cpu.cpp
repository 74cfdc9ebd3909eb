#include <algorithm>

#include "core/parallel.h"
#include "ops/norm/norm_row.h"
#include "ops/qk_norm_rope/qk_norm_rope_kernels.h"
#include "ops/rope/rope_row.h"

namespace xtrain {
namespace {

constexpr int64_t kTokenBlock = 32;  // tokens whose weight gradients form one partial sum

// y = rotate(x rstd weight).
template <class Pairing, class T, class A>
void norm_rotate_row(Pairing, int64_t half, const A* cos, const A* sin, const T* weight, A rstd,
                     const T* x, T* y) {
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const int64_t first = Pairing::first(i, half), second = Pairing::second(i, half);
    const A x1 = static_cast<A>(x[first]) * rstd * static_cast<A>(weight[first]);
    const A x2 = static_cast<A>(x[second]) * rstd * static_cast<A>(weight[second]);
    y[first] = static_cast<T>(x1 * cos[i] - x2 * sin[i]);
    y[second] = static_cast<T>(x2 * cos[i] + x1 * sin[i]);
  }
}

// One pair on the way back: x_hat, and the gradient of x_hat weight, which is dy turned back.
template <class A>
struct PairBackward {
  A x_hat1, x_hat2, dy1, dy2;

  template <class T>
  PairBackward(A cos, A sin, A rstd, T x1, T x2, T rotated1, T rotated2)
      : x_hat1(static_cast<A>(x1) * rstd),
        x_hat2(static_cast<A>(x2) * rstd),
        dy1(static_cast<A>(rotated1) * cos + static_cast<A>(rotated2) * sin),
        dy2(static_cast<A>(rotated2) * cos - static_cast<A>(rotated1) * sin) {}
};

// dweight += dy x_hat.
template <class Pairing, class T, class A>
void add_weight_gradient(Pairing, int64_t half, const A* cos, const A* sin, A rstd, const T* x,
                         const T* dy, A* dweight) {
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const int64_t first = Pairing::first(i, half), second = Pairing::second(i, half);
    const PairBackward<A> pair(cos[i], sin[i], rstd, x[first], x[second], dy[first], dy[second]);
    dweight[first] += pair.dy1 * pair.x_hat1;
    dweight[second] += pair.dy2 * pair.x_hat2;
  }
}

// dx = rstd (g - x_hat mean(g x_hat)) with g = dy weight.
template <class Pairing, class T, class A>
void input_gradient_row(Pairing, int64_t half, const A* cos, const A* sin, const T* weight, A rstd,
                        const T* x, const T* dy, T* dx) {
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < half; ++i) {
    const int64_t first = Pairing::first(i, half), second = Pairing::second(i, half);
    const PairBackward<A> pair(cos[i], sin[i], rstd, x[first], x[second], dy[first], dy[second]);
    sum += pair.dy1 * static_cast<A>(weight[first]) * pair.x_hat1 +
           pair.dy2 * static_cast<A>(weight[second]) * pair.x_hat2;
  }
  const A mean = sum / static_cast<A>(2 * half);
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const int64_t first = Pairing::first(i, half), second = Pairing::second(i, half);
    const PairBackward<A> pair(cos[i], sin[i], rstd, x[first], x[second], dy[first], dy[second]);
    const A g1 = pair.dy1 * static_cast<A>(weight[first]);
    const A g2 = pair.dy2 * static_cast<A>(weight[second]);
    dx[first] = static_cast<T>(rstd * (g1 - pair.x_hat1 * mean));
    dx[second] = static_cast<T>(rstd * (g2 - pair.x_hat2 * mean));
  }
}

template <class Pairing, class T>
void forward_token(Pairing pairing, const QkNormRopeForward<T>& p, int64_t token) {
  using A = Accumulator<T>;
  const QkNormRope& o = p.options;
  const int64_t half = o.head_dim / 2, turned = o.heads + o.kv_heads;
  const int64_t at = p.angles.row(token) * half;
  const A *cos = p.angles.cos + at, *sin = p.angles.sin + at;
  const T* x = p.x + token * p.x_stride;
  T* y = p.y + token * o.width();
  for (int64_t h = 0; h < turned; ++h) {
    const T* head = x + h * o.head_dim;
    T* result = y + h * o.head_dim;
    const T* weight = h < o.heads ? p.q_weight : p.k_weight;
    if (weight) {
      const A rstd = p.rstd[token * turned + h] = rms_rstd(head, o.head_dim, o.eps);
      norm_rotate_row(pairing, half, cos, sin, weight, rstd, head, result);
    } else {
      rotate_row(pairing, half, cos, sin, A{1}, head, result);
    }
  }
}

template <class Pairing, class T, class A>
void backward_token(Pairing pairing, const QkNormRopeBackward<T>& p, int64_t token, A* dq_weight,
                    A* dk_weight) {
  const QkNormRope& o = p.options;
  const int64_t half = o.head_dim / 2, turned = o.heads + o.kv_heads;
  const int64_t at = p.angles.row(token) * half;
  const A *cos = p.angles.cos + at, *sin = p.angles.sin + at;
  for (int64_t h = 0; h < turned; ++h) {
    const int64_t head = h * o.head_dim;
    const T* dy = p.dy + token * o.width() + head;
    T* dx = p.dx ? p.dx + token * p.dx_stride + head : nullptr;
    const T* weight = h < o.heads ? p.q_weight : p.k_weight;
    if (!weight) {
      rotate_row(pairing, half, cos, sin, A{-1}, dy, dx);
      continue;
    }
    const A rstd = p.rstd[token * turned + h];
    const T* x = p.x + token * p.x_stride + head;
    A* dweight = h < o.heads ? dq_weight : dk_weight;
    if (dweight) add_weight_gradient(pairing, half, cos, sin, rstd, x, dy, dweight);
    if (dx) input_gradient_row(pairing, half, cos, sin, weight, rstd, x, dy, dx);
  }
}

}  // namespace

template <class T>
void qk_norm_rope_forward(const Cpu& cpu, const QkNormRopeForward<T>& p) {
  with_pairing(p.options.pairing, [&](auto pairing) {
    parallel_blocks(cpu, p.tokens, kTokenBlock, [&](int64_t begin, int64_t end) {
      for (int64_t token = begin; token < end; ++token) forward_token(pairing, p, token);
    });
  });
}

int64_t qk_token_blocks(const Cpu&, int64_t tokens) {
  return (tokens + kTokenBlock - 1) / kTokenBlock;
}

template <class T>
void qk_norm_rope_backward(const Cpu& cpu, const QkNormRopeBackward<T>& p) {
  const int64_t head_dim = p.options.head_dim;
  with_pairing(p.options.pairing, [&](auto pairing) {
    parallel_blocks(cpu, p.tokens, kTokenBlock, [&](int64_t begin, int64_t end) {
      const int64_t partial = begin / kTokenBlock * head_dim;
      auto* dq_weight = p.dq_weight ? p.dq_weight + partial : nullptr;
      auto* dk_weight = p.dk_weight ? p.dk_weight + partial : nullptr;
      if (dq_weight) std::fill_n(dq_weight, head_dim, 0);
      if (dk_weight) std::fill_n(dk_weight, head_dim, 0);
      for (int64_t token = begin; token < end; ++token) {
        backward_token(pairing, p, token, dq_weight, dk_weight);
      }
    });
  });
}

#define XT_QK_NORM_ROPE(T)                                                     \
  template void qk_norm_rope_forward(const Cpu&, const QkNormRopeForward<T>&); \
  template void qk_norm_rope_backward(const Cpu&, const QkNormRopeBackward<T>&);
XT_QK_NORM_ROPE(double)
XT_QK_NORM_ROPE(float)
XT_QK_NORM_ROPE(BFloat16)
#undef XT_QK_NORM_ROPE

}  // namespace xtrain
