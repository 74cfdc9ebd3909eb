#pragma once
// Tiles of flash attention on a GPU's ordinary arithmetic units.
//
// Tiles of queries, keys and scores lie in shared memory in the accumulator's type. The threads of
// a block form rows of kAcross. Of a tile of scores a thread owns kRows neighbouring rows and every
// kAcross-th column; of a tile of output the same rows and the kAcross-th part of their elements.
// So each value read from shared memory serves several products, reads are 16 bytes wide, and a
// row's softmax needs exchanges between kAcross neighbouring lanes only.

#if defined(__CUDACC__)

#include "ops/attention/flash_kernels.h"

namespace xtrain::ffma {

inline constexpr int kAcross = 16;

// Tiles of kTileRows rows of one head, up to kHeadDim elements wide; kThreadRows rows a thread.
// Registers are limited so that kLeastBlocks blocks fit on a multiprocessor.
template <class Element, int kHeadDim, int kTileRows, int kThreadRows, int kLeastBlocks = 1>
struct TileShape {
  using A = Element;
  static constexpr int kDim = kHeadDim, kTile = kTileRows, kRows = kThreadRows;
  static constexpr int kBlocks = kLeastBlocks;
  static constexpr int kThreads = kAcross * kTile / kRows;
  static constexpr int kColumns = kTile / kAcross;  // of scores, a thread
  static constexpr int kWidth = kDim / kAcross;     // of a head's elements, a thread
  static constexpr int kVector = 16 / static_cast<int>(sizeof(A));
  // A thread's elements lie in groups side by side, the groups of kAcross threads one behind the
  // other.
  static constexpr int kGroup = kVector < kWidth ? kVector : kWidth;
  // Rows begin 16 bytes apart in the banks, so that eight lanes reading 16 bytes of eight rows do
  // not meet.
  static constexpr int kPitch = kDim + kVector, kScorePitch = kTile + kVector;
  static constexpr int kTileSize = kTile * kPitch, kScoreSize = kTile * kScorePitch;
};

__device__ inline int thread_column() {
  return threadIdx.x % kAcross;
}
template <class S>
__device__ int thread_row() {
  return threadIdx.x / kAcross * S::kRows;
}

// Where the thread's element w of a row lies.
template <class S>
__device__ int element_of(int w) {
  return (w / S::kGroup * kAcross + thread_column()) * S::kGroup + w % S::kGroup;
}

template <class A>
__device__ A* shared_memory() {
  extern __shared__ uint4 memory[];
  return reinterpret_cast<A*>(memory);
}

template <int kCount, class A>
__device__ void load_vector(const A* from, A* to) {
  struct alignas(kCount * sizeof(A)) Vector {
    A value[kCount];
  };
  const Vector vector = *reinterpret_cast<const Vector*>(from);
#pragma unroll
  for (int e = 0; e < kCount; ++e) to[e] = vector.value[e];
}

// ---- products of tiles in shared memory; a thread's part of the result stays in registers ----

// s += a b^T over the head's elements.
template <class S, class A = typename S::A>
__device__ void multiply_rows(const A* a, const A* b, A (&s)[S::kRows][S::kColumns]) {
  a += thread_row<S>() * S::kPitch;
  b += thread_column() * S::kPitch;
#pragma unroll 2
  for (int d = 0; d < S::kDim; d += S::kVector) {
    A y[S::kColumns][S::kVector];
#pragma unroll
    for (int j = 0; j < S::kColumns; ++j) {
      load_vector<S::kVector>(b + j * kAcross * S::kPitch + d, y[j]);
    }
#pragma unroll
    for (int i = 0; i < S::kRows; ++i) {
      A x[S::kVector];
      load_vector<S::kVector>(a + i * S::kPitch + d, x);
#pragma unroll
      for (int j = 0; j < S::kColumns; ++j) {
#pragma unroll
        for (int e = 0; e < S::kVector; ++e) s[i][j] += x[e] * y[j][e];
      }
    }
  }
}

template <class S, class A = typename S::A>
__device__ void load_elements(const A* row, A (&y)[S::kWidth]) {
#pragma unroll
  for (int w = 0; w < S::kWidth; w += S::kGroup) {
    load_vector<S::kGroup>(row + element_of<S>(w), y + w);
  }
}

template <class S, class A = typename S::A>
__device__ void add_product(const A (&x)[S::kRows], const A (&y)[S::kWidth],
                            A (&out)[S::kRows][S::kWidth]) {
#pragma unroll
  for (int i = 0; i < S::kRows; ++i) {
#pragma unroll
    for (int w = 0; w < S::kWidth; ++w) out[i][w] += x[i] * y[w];
  }
}

// out += scores b
template <class S, class A = typename S::A>
__device__ void add_weighted_rows(const A* scores, const A* b, A (&out)[S::kRows][S::kWidth]) {
  scores += thread_row<S>() * S::kScorePitch;
#pragma unroll 1
  for (int n = 0; n < S::kTile; n += S::kVector) {
    A x[S::kVector][S::kRows];
#pragma unroll
    for (int i = 0; i < S::kRows; ++i) {
      A along[S::kVector];
      load_vector<S::kVector>(scores + i * S::kScorePitch + n, along);
#pragma unroll
      for (int e = 0; e < S::kVector; ++e) x[e][i] = along[e];
    }
#pragma unroll
    for (int e = 0; e < S::kVector; ++e) {
      A y[S::kWidth];
      load_elements<S>(b + (n + e) * S::kPitch, y);
      add_product<S>(x[e], y, out);
    }
  }
}

// out += scores^T b
template <class S, class A = typename S::A>
__device__ void add_weighted_columns(const A* scores, const A* b, A (&out)[S::kRows][S::kWidth]) {
  constexpr int kStep = S::kVector < S::kRows ? S::kVector : S::kRows;
  scores += thread_row<S>();
#pragma unroll 4
  for (int m = 0; m < S::kTile; ++m) {
    A x[S::kRows], y[S::kWidth];
#pragma unroll
    for (int i = 0; i < S::kRows; i += kStep) {
      load_vector<kStep>(scores + m * S::kScorePitch + i, x + i);
    }
    load_elements<S>(b + m * S::kPitch, y);
    add_product<S>(x, y, out);
  }
}

// ---- between global memory, shared memory and registers ----

// The tile [kTile, kDim] of `count` rows; what is missing is 0. Loads are issued kBatch at a time,
// so that their latencies overlap.
template <class S, class T, class A = typename S::A>
__device__ void load_tile(const T* x, int64_t stride, int64_t count, int width, A* tile) {
  constexpr int kEach = S::kTile * S::kDim / S::kThreads, kBatch = kEach < 16 ? kEach : 16;
  static_assert(kEach % kBatch == 0);
#pragma unroll 1
  for (int first = threadIdx.x; first < S::kTile * S::kDim; first += kBatch * S::kThreads) {
    T value[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int i = first + b * S::kThreads, row = i / S::kDim, d = i % S::kDim;
      value[b] = T{};
      if (row < count && d < width) value[b] = x[row * stride + d];
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int i = first + b * S::kThreads;
      tile[i / S::kDim * S::kPitch + i % S::kDim] = static_cast<A>(value[b]);
    }
  }
}

template <class S, class A = typename S::A>
__device__ A& own_score(A* scores, int i, int j) {
  return scores[(thread_row<S>() + i) * S::kScorePitch + thread_column() + j * kAcross];
}

template <class S, class A = typename S::A>
__device__ void store_scores(const A (&s)[S::kRows][S::kColumns], A* scores) {
#pragma unroll
  for (int i = 0; i < S::kRows; ++i) {
#pragma unroll
    for (int j = 0; j < S::kColumns; ++j) own_score<S>(scores, i, j) = s[i][j];
  }
}

// s *= scores
template <class S, class A = typename S::A>
__device__ void multiply_by_scores(A* scores, A (&s)[S::kRows][S::kColumns]) {
#pragma unroll
  for (int i = 0; i < S::kRows; ++i) {
#pragma unroll
    for (int j = 0; j < S::kColumns; ++j) s[i][j] *= own_score<S>(scores, i, j);
  }
}

// scores = dropout's factors of a tile. One draw is for four neighbouring keys, whose scores four
// threads own, so the factors pass through shared memory.
template <class S, class A = typename S::A>
__device__ void draw_factors(const DropoutSource& source, int64_t batch, int64_t head,
                             int64_t first_query, int64_t first_key, A* scores) {
  constexpr int kQuads = S::kTile / 4;
  const AttentionDropout dropout(source);
  const A kept = static_cast<A>(dropout.kept);
  for (int i = threadIdx.x; i < S::kTile * kQuads; i += S::kThreads) {
    const int row = i / kQuads, quad = i % kQuads;
    const Philox4 drawn = dropout.words(batch, head, first_query + row, first_key / 4 + quad);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      scores[row * S::kScorePitch + 4 * quad + c] = dropout.keeps(drawn.word[c]) ? kept : A{0};
    }
  }
}

// target = (+=) x, rows first_row + i < rows of one head.
template <class S, class T, class A = typename S::A>
__device__ void store_gradient(const FlashGradient& target, int64_t batch, int64_t head,
                               int64_t first_row, int64_t rows, int width,
                               const A (&x)[S::kRows][S::kWidth]) {
  const auto store = [&](auto* data) {
    using Out = std::remove_pointer_t<decltype(data)>;
    data += batch * target.batch + head * target.head;
#pragma unroll
    for (int i = 0; i < S::kRows; ++i) {
      const int64_t row = first_row + thread_row<S>() + i;
#pragma unroll
      for (int w = 0; w < S::kWidth; ++w) {
        const int d = element_of<S>(w);
        if (row >= rows || d >= width) continue;
        Out& element = data[row * target.time + d * target.dim];
        element = static_cast<Out>((target.accumulate ? static_cast<A>(element) : A{0}) + x[i][w]);
      }
    }
  };
  target.wide ? store(static_cast<A*>(target.data)) : store(static_cast<T*>(target.data));
}

}  // namespace xtrain::ffma

#endif
