#pragma once
// Rows whose elements form pairs, half a row of them: pair i is (i, i + half), or (2i, 2i + 1) when
// the pairs are adjacent. Both elements of a pair lie with one thread.

#include "core/cuda/elementwise.h"

namespace xtrain {

template <class A, int kPairs>
struct Pairs {
  Elements<A, kPairs> first, second;
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
    const auto both = load_elements<2 * kPairs>(row + 2 * i);
    Pairs<Accumulator<T>, kPairs> pairs;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      pairs.first.at[j] = both.at[2 * j];
      pairs.second.at[j] = both.at[2 * j + 1];
    }
    return pairs;
  } else {
    return {load_elements<kPairs>(row + first_of_pair<kAdjacent>(i)),
            load_elements<kPairs>(row + second_of_pair<kAdjacent>(i, half))};
  }
}

template <bool kAdjacent, class T, int kPairs>
__device__ void store_pairs(T* row, int64_t half, int64_t i,
                            const Pairs<Accumulator<T>, kPairs>& pairs) {
  if constexpr (kAdjacent && kPairs > 1) {
    Elements<Accumulator<T>, 2 * kPairs> both;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      both.at[2 * j] = pairs.first.at[j];
      both.at[2 * j + 1] = pairs.second.at[j];
    }
    store_elements(row + 2 * i, both);
  } else {
    store_elements(row + first_of_pair<kAdjacent>(i), pairs.first);
    store_elements(row + second_of_pair<kAdjacent>(i, half), pairs.second);
  }
}

// The cosines and sines of the angles by which pairs turn.
template <class A, int kPairs>
struct Angles {
  Elements<A, kPairs> cos, sin;
};
template <int kPairs, class A>
__device__ Angles<A, kPairs> load_angles(const A* cos, const A* sin) {
  return {load_elements<kPairs>(cos), load_elements<kPairs>(sin)};
}

// Each pair turned by its angle, and by its angle's negative.
template <class A, int kPairs>
__device__ Pairs<A, kPairs> turned(const Pairs<A, kPairs>& x, const Angles<A, kPairs>& angles) {
  Pairs<A, kPairs> y;
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const A x1 = x.first.at[j], x2 = x.second.at[j], c = angles.cos.at[j], s = angles.sin.at[j];
    y.first.at[j] = x1 * c - x2 * s;
    y.second.at[j] = x2 * c + x1 * s;
  }
  return y;
}
template <class A, int kPairs>
__device__ Pairs<A, kPairs> turned_back(const Pairs<A, kPairs>& x,
                                        const Angles<A, kPairs>& angles) {
  Pairs<A, kPairs> y;
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const A x1 = x.first.at[j], x2 = x.second.at[j], c = angles.cos.at[j], s = angles.sin.at[j];
    y.first.at[j] = x1 * c + x2 * s;
    y.second.at[j] = x2 * c - x1 * s;
  }
  return y;
}

}  // namespace xtrain
