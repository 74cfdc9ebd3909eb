#pragma once
// What the CPU kernels of flash attention are made of. They work in tiles of kTile queries by kTile
// keys, cut further into strips of some lanes: queries (forward) or keys (backward) that lie side
// by side in vectors. A strip's scores are the product of rows as they lie in memory and of a
// transposed copy of the strip. Two vectors (of f32 with AVX-512) use each element of the
// rows twice; where there are no more queries than one has, as in decoding, a second would be
// empty.

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include "core/cpu/gemm_pack.h"
#include "core/cpu/tile_gemm.h"
#include "ops/attention/flash_kernels.h"

namespace xtrain::flash {

inline constexpr int64_t kTile = 64, kFewLanes = kTileLanes, kManyLanes = 2 * kTileLanes;

// One allocation a task, cut into aligned pieces.
template <class A>
class Scratch {
 public:
  Scratch(const Context& ctx, std::initializer_list<int64_t> pieces) {
    int64_t total = 0;
    for (int64_t n : pieces) total += aligned(n);
    memory_ = empty(ctx, {total}, dtype_of<A>);
    next_ = total > 0 ? memory_.mutable_data<A>() : nullptr;
  }
  A* take(int64_t n) {
    A* piece = next_;
    next_ += aligned(n);
    return piece;
  }

 private:
  static int64_t aligned(int64_t n) { return (n + kTileLanes - 1) / kTileLanes * kTileLanes; }

  Tensor memory_;
  A* next_;
};

// Rows of one head in the accumulator's type.
template <class A>
struct Rows {
  const A* data;
  int64_t stride;

  const A* at(int64_t row) const { return data + row * stride; }
};

// The rows where they lie, or widened into `buffer`.
template <class T, class A>
Rows<A> rows_of(const T* x, int64_t stride, int64_t count, int64_t width, A* buffer) {
  if constexpr (std::is_same_v<T, A>) {
    return Rows<A>{x, stride};
  } else {
    for (int64_t i = 0; i < count; ++i) {
#pragma omp simd
      for (int64_t d = 0; d < width; ++d) {
        buffer[i * width + d] = static_cast<A>(x[i * stride + d]);
      }
    }
    return Rows<A>{buffer, width};
  }
}

// Elements of the buffer that rows_of needs.
template <class T>
constexpr int64_t widened(int64_t elements) {
  return std::is_same_v<T, Accumulator<T>> ? 0 : elements;
}

// columns[d, i] = x[i, d] for a strip of `count` rows; what is missing is 0.
template <int64_t kLanes, class T, class A>
void transpose_strip(const T* x, int64_t stride, int64_t count, int64_t width, A* columns) {
  pack_transposed<kLanes>(x, stride, count, width, columns);
}

// What kLanes consecutive queries see.
template <int64_t kLanes>
struct QueryStrip {
  int64_t count = 0;                             // queries, kLanes but at the end
  int32_t first[kLanes] = {}, end[kLanes] = {};  // lanes without a query see nothing
  KeyRange any;                                  // holds all keys that some query sees
  KeyRange all;                                  // keys that every query sees

  bool sees_some(int64_t first_key, int64_t end_key) const {
    return any.first < end_key && first_key < any.end;
  }
  bool sees_all(int64_t first_key, int64_t end_key) const {
    return all.first <= first_key && end_key <= all.end;
  }
};

template <int64_t kLanes>
QueryStrip<kLanes> query_strip(const VisibleKeys& visible, int64_t batch, int64_t first_query) {
  QueryStrip<kLanes> strip;
  strip.count = std::min(kLanes, visible.queries - first_query);
  strip.all.end = std::numeric_limits<int32_t>::max();
  for (int64_t i = 0; i < strip.count; ++i) {
    const KeyRange range = visible.of(batch, first_query + i);
    strip.first[i] = range.first;
    strip.end[i] = range.end;
    strip.all.first = std::max(strip.all.first, range.first);
    strip.all.end = std::min(strip.all.end, range.end);
    if (range.first == range.end) continue;
    const bool is_first = strip.any.first == strip.any.end;
    strip.any.first = is_first ? range.first : std::min(strip.any.first, range.first);
    strip.any.end = std::max(strip.any.end, range.end);
  }
  return strip;
}

template <int64_t kLanes>
KeyRange union_of(const QueryStrip<kLanes>* strips, int64_t count) {
  KeyRange range;
  for (int64_t i = 0; i < count; ++i) {
    const KeyRange any = strips[i].any;
    if (any.first == any.end) continue;
    range.first = range.first == range.end ? any.first : std::min(range.first, any.first);
    range.end = std::max(range.end, any.end);
  }
  return range;
}

// Dropout's factors of kLanes queries from `query` and the keys 4 * key_quad + c.
template <int64_t kLanes, class A>
void draw_factors(const AttentionDropout& dropout, int64_t batch, int64_t head, int64_t query,
                  int64_t key_quad, A (&factors)[4][kLanes]) {
  const A kept = static_cast<A>(dropout.kept);
#pragma omp simd
  for (int64_t i = 0; i < kLanes; ++i) {
    const Philox4 w = dropout.words(batch, head, query + i, key_quad);
    for (int c = 0; c < 4; ++c) factors[c][i] = dropout.keeps(w.word[c]) ? kept : A{0};
  }
}

}  // namespace xtrain::flash
