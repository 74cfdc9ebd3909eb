#pragma once
// The rotation of one head on the CPU, for the kernels that rotate.

#include "core/dtype.h"
#include "ops/rope/rope.h"

namespace xtrain {

// The two elements of pair i.
struct HalvesPairing {
  static int64_t first(int64_t i, int64_t) { return i; }
  static int64_t second(int64_t i, int64_t half) { return i + half; }
};
struct AdjacentPairing {
  static int64_t first(int64_t i, int64_t) { return 2 * i; }
  static int64_t second(int64_t i, int64_t) { return 2 * i + 1; }
};

// Calls f with one of the two, so that the loops inside know where their elements lie.
template <class F>
void with_pairing(RopePairing pairing, F&& f) {
  pairing == RopePairing::halves ? f(HalvesPairing{}) : f(AdjacentPairing{});
}

// y = x turned by the angles of `half` pairs, backwards with direction -1. y may be x.
template <class Pairing, class T>
void rotate_row(Pairing, int64_t half, const Accumulator<T>* cos, const Accumulator<T>* sin,
                Accumulator<T> direction, const T* x, T* y) {
  using A = Accumulator<T>;
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const int64_t first = Pairing::first(i, half), second = Pairing::second(i, half);
    const A x1 = static_cast<A>(x[first]), x2 = static_cast<A>(x[second]);
    const A s = direction * sin[i];
    y[first] = static_cast<T>(x1 * cos[i] - x2 * s);
    y[second] = static_cast<T>(x2 * cos[i] + x1 * s);
  }
}

}  // namespace xtrain
