#pragma once
// The kernels of rope.h.

#include "core/dispatch.h"
#include "ops/rope/rope.h"

namespace xtrain {

// cos and sin [positions, head_dim / 2].
template <class A>
void rope_angles(const Cpu& cpu, int64_t positions, int64_t head_dim, double theta, A* cos, A* sin);

template <class T>
struct RopeRotation {
  int64_t batch, time, heads, head_dim;
  RopePairing pairing;
  bool inverse;  // by the angle's negative
  const T* x;
  int64_t batch_stride, time_stride, head_stride;  // of x, whose last dimension is contiguous
  const int32_t* positions;                        // [batch, time]
  const Accumulator<T>*cos, *sin;
  T* y;  // contiguous; may be x when x is
};

template <class T>
void rope_rotate(const Cpu& cpu, const RopeRotation<T>& p);

}  // namespace xtrain
