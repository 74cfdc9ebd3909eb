#include <algorithm>

#include "core/cuda/pairs.h"
#include "ops/rope/rope_kernels.h"

namespace xtrain {
namespace {

constexpr int kThreads = 256;

// What the host passes by value, so that a table can be made inside a captured step.
struct Frequencies {
  static constexpr int kMost = 256;
  double at[kMost];
};

// Columns [first, first + count) of the tables.
template <class A>
__global__ void __launch_bounds__(kThreads)
    fill_angles(const __grid_constant__ Frequencies frequencies, int64_t first, int64_t count,
                int64_t positions, int64_t half, A* cosines, A* sines) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < positions * count; i += step) {
    const int64_t position = i / count, column = i % count;
    double c, s;
    sincos(position * frequencies.at[column], &s, &c);
    cosines[position * half + first + column] = static_cast<A>(c);
    sines[position * half + first + column] = static_cast<A>(s);
  }
}

// Threads take kPairs pairs of one head at a time.
template <bool kAdjacent, int kPairs, class T>
__global__ void __launch_bounds__(kThreads) turn_heads(RopeRotation<T> p) {
  const int64_t half = p.head_dim / 2, runs = half / kPairs;
  const int64_t count = p.batch * p.time * p.heads * runs, step = int64_t{gridDim.x} * kThreads;
  for (int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x; at < count; at += step) {
    const int64_t head_row = at / runs, i = at % runs * kPairs;
    const int64_t token = head_row / p.heads, head = head_row % p.heads;
    const T* x = p.x + token / p.time * p.batch_stride + token % p.time * p.time_stride +
                 head * p.head_stride;
    const int64_t angle = p.angles.row(token) * half + i;
    const auto angles = load_angles<kPairs>(p.angles.cos + angle, p.angles.sin + angle);
    const auto pairs = load_pairs<kAdjacent, kPairs>(x, half, i);
    store_pairs<kAdjacent>(p.y + head_row * p.head_dim, half, i,
                           p.inverse ? turned_back(pairs, angles) : turned(pairs, angles));
  }
}

// Whether heads can be read and written kPackSize pairs at a time.
template <class T>
bool pairs_fit_packs(const RopeRotation<T>& p) {
  return fits_packs(p.head_dim / 2, p.x, p.y) && fits_packs(p.batch_stride, p.x) &&
         fits_packs(p.time_stride, p.x) && fits_packs(p.head_stride, p.x) &&
         fits_packs(0, p.angles.cos, p.angles.sin);
}

template <bool kAdjacent, class T>
void rotate(const Cuda& cuda, const RopeRotation<T>& p) {
  const bool packs = pairs_fit_packs(p);
  const int64_t pairs = p.batch * p.time * p.heads * (p.head_dim / 2);
  const int64_t a_block = kThreads * (packs ? kPackSize<T> : 1);
  XT_LAUNCH(cuda, (LaunchShape{grid_for(pairs, a_block), kThreads}),
            (packs ? turn_heads<kAdjacent, kPackSize<T>, T> : turn_heads<kAdjacent, 1, T>), p);
}

}  // namespace

template <class A>
void rope_angles(const Cuda& cuda, int64_t positions, int64_t head_dim, double theta, A* cos,
                 A* sin) {
  const int64_t half = head_dim / 2;
  for (int64_t first = 0; first < half; first += Frequencies::kMost) {
    const int64_t count = std::min<int64_t>(half - first, Frequencies::kMost);
    Frequencies frequencies;
    for (int64_t i = 0; i < count; ++i) {
      frequencies.at[i] = rope_frequency(theta, first + i, head_dim);
    }
    XT_LAUNCH(cuda, (LaunchShape{grid_for(positions * count, kThreads), kThreads}), fill_angles<A>,
              frequencies, first, count, positions, half, cos, sin);
  }
}

template <class T>
void rope_rotate(const Cuda& cuda, const RopeRotation<T>& p) {
  p.pairing == RopePairing::adjacent ? rotate<true>(cuda, p) : rotate<false>(cuda, p);
}

template void rope_angles(const Cuda&, int64_t, int64_t, double, double*, double*);
template void rope_angles(const Cuda&, int64_t, int64_t, double, float*, float*);
template void rope_rotate(const Cuda&, const RopeRotation<double>&);
template void rope_rotate(const Cuda&, const RopeRotation<float>&);
template void rope_rotate(const Cuda&, const RopeRotation<BFloat16>&);

}  // namespace xtrain
