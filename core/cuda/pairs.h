#pragma once
// Rows whose elements form pairs, half a row of them: pair i is (i, i + half), or (2i, 2i + 1) when
// the pairs are adjacent. Both elements of a pair lie with one thread.

#include "core/cuda/elementwise.h"

namespace xtrain {

template <class A, int kPairs>
struct Pairs {
  Values<A, kPairs> first, second;
};

// Where pair i lies in its row.
template <bool kAdjacent>
__device__ int64_t first_of_pair(int64_t i) {
  return kAdjacent ? 2 * i : i;
}
template <bool kAdjacent>
__device__ int64_t second_of_pair(int64_t i, int64_t half) {
  return kAdjacent ? 2 * i + 1 : i + half;
}

// Pairs i to i + kPairs - 1 of a row; kPairs is 1 or a pack.
template <bool kAdjacent, int kPairs, class T>
__device__ Pairs<Accumulator<T>, kPairs> load_pairs(const T* row, int64_t half, int64_t i) {
  if constexpr (kAdjacent && kPairs > 1) {
    const auto both = load_values<2 * kPairs>(row + 2 * i);
    Pairs<Accumulator<T>, kPairs> pairs;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      pairs.first.at[j] = both.at[2 * j];
      pairs.second.at[j] = both.at[2 * j + 1];
    }
    return pairs;
  } else {
    return {load_values<kPairs>(row + first_of_pair<kAdjacent>(i)),
            load_values<kPairs>(row + second_of_pair<kAdjacent>(i, half))};
  }
}

template <bool kAdjacent, class T, int kPairs>
__device__ void store_pairs(T* row, int64_t half, int64_t i,
                            const Pairs<Accumulator<T>, kPairs>& pairs) {
  if constexpr (kAdjacent && kPairs > 1) {
    Values<Accumulator<T>, 2 * kPairs> both;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      both.at[2 * j] = pairs.first.at[j];
      both.at[2 * j + 1] = pairs.second.at[j];
    }
    store_values(row + 2 * i, both);
  } else {
    store_values(row + first_of_pair<kAdjacent>(i), pairs.first);
    store_values(row + second_of_pair<kAdjacent>(i, half), pairs.second);
  }
}

// The cosines and sines of the angles by which pairs turn.
template <class A, int kPairs>
struct Angles {
  Values<A, kPairs> cos, sin;
};

// Each pair turned by its angle, or by its negative with direction -1.
template <class A, int kPairs>
__device__ Pairs<A, kPairs> turned(const Pairs<A, kPairs>& x, const Angles<A, kPairs>& angles,
                                   A direction) {
  Pairs<A, kPairs> y;
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const A x1 = x.first.at[j], x2 = x.second.at[j];
    const A c = angles.cos.at[j], s = direction * angles.sin.at[j];
    y.first.at[j] = x1 * c - x2 * s;
    y.second.at[j] = x2 * c + x1 * s;
  }
  return y;
}

}  // namespace xtrain
