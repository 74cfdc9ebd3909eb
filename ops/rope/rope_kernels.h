#pragma once
// The kernels of rope.h.

#include <cmath>

#include "core/dispatch.h"
#include "ops/optional_data.h"
#include "ops/rope/rope.h"

namespace xtrain {

// The angle that pair i turns by from one position to the next.
inline double rope_frequency(double theta, int64_t i, int64_t head_dim) {
  return std::pow(theta, -2.0 * i / head_dim);
}

// cos and sin [positions, head_dim / 2].
template <class A>
void rope_angles(const Cpu& cpu, int64_t positions, int64_t head_dim, double theta, A* cos, A* sin);
template <class A>
void rope_angles(const Cuda& cuda, int64_t positions, int64_t head_dim, double theta, A* cos,
                 A* sin);

// The angles of tokens, from a table by position.
template <class A>
struct TokenAngles {
  const A *cos, *sin;  // [table_rows, half]
  int64_t table_rows;
  const int32_t* positions;  // [tokens]; null: every token is at position 0, where nothing turns

  // The table's row for a token. A position outside the table was reported by check_indices, which
  // does not stop a GPU: it reads the first row.
  XT_HOST_DEVICE int64_t row(int64_t token) const {
    const int64_t position = positions ? positions[token] : 0;
    return position >= 0 && position < table_rows ? position : 0;
  }
};

template <class A>
TokenAngles<A> token_angles(const Tensor& cos, const Tensor& sin, const Tensor& positions) {
  return {cos.data<A>(), sin.data<A>(), cos.size(0), data_or_null<int32_t>(positions)};
}

template <class T>
struct RopeRotation {
  int64_t batch, time, heads, head_dim;
  RopePairing pairing;
  bool inverse;  // by the angle's negative
  const T* x;
  int64_t batch_stride, time_stride, head_stride;  // of x, whose last dimension is contiguous
  TokenAngles<Accumulator<T>> angles;
  T* y;  // contiguous; may be x when x is
};

template <class T>
void rope_rotate(const Cpu& cpu, const RopeRotation<T>& p);
template <class T>
void rope_rotate(const Cuda& cuda, const RopeRotation<T>& p);

}  // namespace xtrain
