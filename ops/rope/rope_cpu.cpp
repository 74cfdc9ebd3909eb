#include <cmath>
#include <vector>

#include "core/parallel.h"
#include "ops/rope/rope_kernels.h"
#include "ops/rope/rope_row.h"

namespace xtrain {

template <class A>
void rope_angles(const Cpu& cpu, int64_t positions, int64_t head_dim, double theta, A* cos,
                 A* sin) {
  const int64_t half = head_dim / 2;
  std::vector<double> frequency(half);
  for (int64_t i = 0; i < half; ++i) frequency[i] = rope_frequency(theta, i, head_dim);
  parallel_for(cpu, positions, [&](int64_t p) {
    for (int64_t i = 0; i < half; ++i) {
      cos[p * half + i] = static_cast<A>(std::cos(p * frequency[i]));
      sin[p * half + i] = static_cast<A>(std::sin(p * frequency[i]));
    }
  });
}

template <class T>
void rope_rotate(const Cpu& cpu, const RopeRotation<T>& p) {
  const int64_t half = p.head_dim / 2, token_size = p.heads * p.head_dim;
  const auto direction = static_cast<Accumulator<T>>(p.inverse ? -1 : 1);
  const int64_t block = std::max<int64_t>(1, kElementBlock / std::max<int64_t>(1, token_size));
  with_pairing(p.pairing, [&](auto pairing) {
    parallel_blocks(cpu, p.batch * p.time, block, [&](int64_t begin, int64_t end) {
      for (int64_t token = begin; token < end; ++token) {
        const T* x = p.x + token / p.time * p.batch_stride + token % p.time * p.time_stride;
        T* y = p.y + token * token_size;
        const int64_t at = p.angles.row(token) * half;
        for (int64_t h = 0; h < p.heads; ++h) {
          rotate_row(pairing, half, p.angles.cos + at, p.angles.sin + at, direction,
                     x + h * p.head_stride, y + h * p.head_dim);
        }
      }
    });
  });
}

template void rope_angles(const Cpu&, int64_t, int64_t, double, double*, double*);
template void rope_angles(const Cpu&, int64_t, int64_t, double, float*, float*);
template void rope_rotate(const Cpu&, const RopeRotation<double>&);
template void rope_rotate(const Cpu&, const RopeRotation<float>&);
template void rope_rotate(const Cpu&, const RopeRotation<BFloat16>&);

}  // namespace xtrain
