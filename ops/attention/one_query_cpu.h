#pragma once
// Flash attention of a single query, as of a token that is decoded. A strip of queries would leave
// all lanes but one empty; here keys lie in the lanes. Tiles of keys and the order of every sum are
// those of flash_forward_cpu.cpp, and so are the bits.

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/cpu/column_strip.h"
#include "core/cpu/vector_math.h"
#include "ops/attention/flash_tile.h"

namespace xtrain::flash {

// The rows of one head.
template <class T>
struct HeadRows {
  const T* data;
  int64_t stride;
};

template <class T>
class OneQuery {
  using A = Accumulator<T>;

 public:
  OneQuery(const Context& ctx, int64_t width, double scale)
      : width_(width),
        scale_(static_cast<A>(scale)),
        scratch_(ctx, {width, width, kTile + kTileLanes, widened<T>(kTile * width)}),
        q_(scratch_.take(width)),
        out_(scratch_.take(width)),
        scores_(scratch_.take(kTile + kTileLanes)),
        v_buffer_(scratch_.take(widened<T>(kTile * width))) {}

  // o [D] of q [D] and the keys of `range`.
  void run(const T* q, const HeadRows<T>& k, const HeadRows<T>& v, const KeyRange& range, T* o) {
    for (int64_t d = 0; d < width_; ++d) q_[d] = static_cast<A>(q[d]);
    std::fill_n(out_, width_, A{0});
    largest_ = -std::numeric_limits<A>::infinity();
    sum_ = 0;
    for (int64_t key = range.first / kTile * kTile; key < range.end; key += kTile) {
      const int64_t first = std::max<int64_t>(key, range.first);
      add_keys(k, v, first, std::min<int64_t>(key + kTile, range.end) - first);
    }
    const A share = sum_ > 0 ? A{1} / sum_ : A{0};
#pragma omp simd
    for (int64_t d = 0; d < width_; ++d) o[d] = static_cast<T>(out_[d] * share);
  }

 private:
  void add_keys(const HeadRows<T>& k, const HeadRows<T>& v, int64_t first, int64_t keys) {
    score_keys(k.data + first * k.stride, k.stride, keys);
    const A rescale = advance_softmax(keys);
    if (rescale != A{1}) {
#pragma omp simd
      for (int64_t d = 0; d < width_; ++d) out_[d] *= rescale;
    }
    const Rows<A> rows = rows_of(v.data + first * v.stride, v.stride, keys, width_, v_buffer_);
    tile_multiply<A>(1, width_, keys, {scores_, 0, 1}, rows.data, rows.stride, out_, width_, true);
  }

  // scores = scale q k. The last vector of keys may take some again that the one before it had.
  void score_keys(const T* k, int64_t stride, int64_t keys) {
    constexpr int64_t kLanes = VectorOf<A>::kLanes;
    int64_t j = 0;
    for (; j + 2 * kLanes <= keys; j += 2 * kLanes) score_vectors<2>(k, stride, j);
    for (; j < keys && keys >= kLanes; j += kLanes) {
      score_vectors<1>(k, stride, std::min(j, keys - kLanes));
    }
    if (j < keys) score_few(k, stride, keys);
#pragma omp simd
    for (int64_t i = 0; i < keys; ++i) scores_[i] *= scale_;
  }

  // Of kVectors vectors of keys from `first` on: each sum waits for the product before it.
  template <int64_t kVectors>
  void score_vectors(const T* k, int64_t stride, int64_t first) {
    using Strip = ColumnStrip<A>;
    constexpr int64_t kLanes = Strip::kLanes;
    typename VectorOf<A>::type sums[1][kVectors];
    clear_sums<A>(sums);
    k += first * stride;
    int64_t d = 0;
    for (; d + Strip::kDepth <= width_; d += Strip::kDepth) {
#pragma GCC unroll 2
      for (int64_t v = 0; v < kVectors; ++v) {
        Strip strip;
        strip.load(k + v * kLanes * stride + d, stride);
#pragma GCC unroll 4
        for (int64_t i = 0; i < Strip::kDepth; ++i) sums[0][v] += strip.rows[i] * q_[d + i];
      }
    }
    for (; d < width_; ++d) {
      for (int64_t v = 0; v < kVectors; ++v) {
        sums[0][v] += gather_lanes<A>(k + v * kLanes * stride + d, stride, kLanes) * q_[d];
      }
    }
    for (int64_t v = 0; v < kVectors; ++v) {
      std::memcpy(scores_ + first + v * kLanes, &sums[0][v], kVectorBytes);
    }
  }

  // Of fewer keys than a vector has. As a vector too: a lone sum is not sure to be compiled to
  // fused operations.
  void score_few(const T* k, int64_t stride, int64_t keys) {
    typename VectorOf<A>::type sums{};
    for (int64_t d = 0; d < width_; ++d) sums += gather_lanes<A>(k + d, stride, keys) * q_[d];
    std::memcpy(scores_, &sums, kVectorBytes);
  }

  // Turns scores into exp(s - largest). What was summed before must be multiplied by the result.
  A advance_softmax(int64_t keys) {
    A largest = largest_;
#pragma omp simd reduction(max : largest)
    for (int64_t j = 0; j < keys; ++j) largest = std::max(largest, scores_[j]);
    // A query that has seen nothing yet has no finite maximum to subtract.
    const A shift = largest == -std::numeric_limits<A>::infinity() ? A{0} : largest;
    // Whole vectors, the rescaling behind the keys: nothing makes a lone exponential round as one
    // of a vector.
    const int64_t padded = (keys + kTileLanes) / kTileLanes * kTileLanes;
    std::fill(scores_ + keys, scores_ + padded, largest_);
    for (int64_t j = 0; j < padded; j += kTileLanes) {
#pragma omp simd
      for (int64_t i = 0; i < kTileLanes; ++i) scores_[j + i] = vector_exp(scores_[j + i] - shift);
    }
    A sum = 0;  // in order
    for (int64_t j = 0; j < keys; ++j) sum += scores_[j];
    const A rescale = scores_[keys];
    sum_ = sum_ * rescale + sum;
    largest_ = largest;
    return rescale;
  }

  const int64_t width_;
  const A scale_;
  Scratch<A> scratch_;
  A *q_, *out_, *scores_, *v_buffer_;
  A largest_ = 0, sum_ = 0;  // the softmax so far
};

}  // namespace xtrain::flash
