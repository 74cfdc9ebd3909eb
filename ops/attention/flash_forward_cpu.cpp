// Each task owns the output of a tile of queries and streams over the tiles of keys that they see,
// with the softmax's maximum and sum kept up to date (Milakov and Gimelshein, arXiv 1805.02867).

#include <cmath>
#include <optional>

#include "core/cpu/vector_math.h"
#include "core/parallel.h"
#include "ops/attention/flash_tile.h"

namespace xtrain {
namespace {

using namespace flash;

// What outweighs waking a thread; a token that is decoded has less.
constexpr int64_t kPieceProducts = int64_t{1} << 19;

// A strip's softmax so far: the largest score of each query, and the sum of exp(s - largest).
template <class A, int64_t kLanes>
struct RunningSoftmax {
  A largest[kLanes], sum[kLanes];

  RunningSoftmax() {
    std::fill_n(largest, kLanes, -std::numeric_limits<A>::infinity());
    std::fill_n(sum, kLanes, A{0});
  }
};

// s [keys, kLanes] = scale s where visible, else -infinity.
template <class A, int64_t kLanes>
void mask_scores(const QueryStrip<kLanes>& strip, int64_t first_key, int64_t keys, A scale, A* s) {
  if (strip.sees_all(first_key, first_key + keys)) {
#pragma omp simd
    for (int64_t i = 0; i < keys * kLanes; ++i) s[i] *= scale;
    return;
  }
  for (int64_t j = 0; j < keys; ++j) {
    const int32_t key = static_cast<int32_t>(first_key + j);
#pragma omp simd
    for (int64_t i = 0; i < kLanes; ++i) {
      const bool visible = (strip.first[i] <= key) & (key < strip.end[i]);
      s[j * kLanes + i] = visible ? scale * s[j * kLanes + i] : -std::numeric_limits<A>::infinity();
    }
  }
}

// Takes `keys` more scores into the softmax and turns them into exp(s - largest). What was summed
// before, here and in the output, must be multiplied by `rescale`.
template <class A, int64_t kLanes>
void advance_softmax(RunningSoftmax<A, kLanes>& softmax, int64_t keys, A* s, A (&rescale)[kLanes]) {
  A largest[kLanes], shift[kLanes], sum[kLanes] = {};
  std::copy_n(softmax.largest, kLanes, largest);
  for (int64_t j = 0; j < keys; ++j) {
#pragma omp simd
    for (int64_t i = 0; i < kLanes; ++i) largest[i] = std::max(largest[i], s[j * kLanes + i]);
  }
#pragma omp simd
  for (int64_t i = 0; i < kLanes; ++i) {
    // A query that has seen nothing yet has no finite maximum to subtract.
    shift[i] = largest[i] == -std::numeric_limits<A>::infinity() ? A{0} : largest[i];
    rescale[i] = vector_exp(softmax.largest[i] - shift[i]);
    softmax.largest[i] = largest[i];
  }
  for (int64_t j = 0; j < keys; ++j) {
#pragma omp simd
    for (int64_t i = 0; i < kLanes; ++i) {
      const A e = vector_exp(s[j * kLanes + i] - shift[i]);
      s[j * kLanes + i] = e;
      sum[i] += e;
    }
  }
#pragma omp simd
  for (int64_t i = 0; i < kLanes; ++i) softmax.sum[i] = softmax.sum[i] * rescale[i] + sum[i];
}

template <class A, int64_t kLanes>
void rescale_rows(const A (&rescale)[kLanes], int64_t count, int64_t width, A* out) {
  for (int64_t i = 0; i < count; ++i) {
    if (rescale[i] == A{1}) continue;
#pragma omp simd
    for (int64_t d = 0; d < width; ++d) out[i * width + d] *= rescale[i];
  }
}

// p [keys, kLanes] times the factors of dropout.
template <int64_t kLanes, class A>
void drop_scores(const AttentionDropout& dropout, int64_t batch, int64_t head, int64_t query,
                 int64_t first_key, int64_t keys, A* p) {
  const int64_t end_key = first_key + keys;
  for (int64_t quad = first_key / 4; 4 * quad < end_key; ++quad) {
    A factors[4][kLanes];
    draw_factors(dropout, batch, head, query, quad, factors);
    for (int64_t key = std::max(first_key, 4 * quad); key < std::min(end_key, 4 * quad + 4);
         ++key) {
      A* row = p + (key - first_key) * kLanes;
#pragma omp simd
      for (int64_t i = 0; i < kLanes; ++i) row[i] *= factors[key % 4][i];
    }
  }
}

// Output and log-sum of the tile of queries from first_query, one head.
template <class T, int64_t kLanes>
class ForwardTile {
  using A = Accumulator<T>;

 public:
  ForwardTile(const Context& ctx, const FlashProblem& p, int64_t batch, int64_t head,
              int64_t first_query)
      : p_(p),
        batch_(batch),
        head_(head),
        first_query_(first_query),
        width_(p.sizes.head_dim),
        scratch_(ctx, {kTile * width_, kTile * width_, kTile * kLanes, widened<T>(kTile * width_),
                       widened<T>(kTile * width_)}),
        q_columns_(scratch_.take(kTile * width_)),
        out_(scratch_.take(kTile * width_)),
        scores_(scratch_.take(kTile * kLanes)),
        k_buffer_(scratch_.take(widened<T>(kTile * width_))),
        v_buffer_(scratch_.take(widened<T>(kTile * width_))) {
    if (p.drops) dropout_.emplace(p.dropout);
    const int64_t queries = std::min(kTile, p.sizes.queries - first_query);
    strip_count_ = (queries + kLanes - 1) / kLanes;
    for (int64_t s = 0; s < strip_count_; ++s) {
      strips_[s] = query_strip<kLanes>(p.visible, batch, first_query + s * kLanes);
    }
    std::fill_n(out_, kTile * width_, A{0});
  }

  void run(const T* q, const T* k, const T* v, T* o, A* log_sum) {
    transpose_queries(q);
    const KeyRange range = union_of(strips_, strip_count_);
    const int64_t kv_head = head_ / p_.sizes.group();
    const T* k_head = k + batch_ * p_.k.batch + kv_head * p_.k.head;
    const T* v_head = v + batch_ * p_.v.batch + kv_head * p_.v.head;
    for (int64_t key = range.first / kTile * kTile; key < range.end; key += kTile) {
      const int64_t first = std::max<int64_t>(key, range.first);
      const int64_t keys = std::min<int64_t>(key + kTile, range.end) - first;
      const Rows<A> k_rows =
          rows_of(k_head + first * p_.k.time, p_.k.time, keys, width_, k_buffer_);
      const Rows<A> v_rows =
          rows_of(v_head + first * p_.v.time, p_.v.time, keys, width_, v_buffer_);
      for (int64_t s = 0; s < strip_count_; ++s) add_keys(s, k_rows, v_rows, first, keys);
    }
    store(o, log_sum);
  }

 private:
  void transpose_queries(const T* q) {
    const T* q_head = q + batch_ * p_.q.batch + head_ * p_.q.head;
    for (int64_t s = 0; s < strip_count_; ++s) {
      transpose_strip<kLanes>(q_head + (first_query_ + s * kLanes) * p_.q.time, p_.q.time,
                              strips_[s].count, width_, q_columns_ + s * kLanes * width_);
    }
  }

  // Those of the tile's keys that the strip sees.
  void add_keys(int64_t s, const Rows<A>& k, const Rows<A>& v, int64_t tile_key,
                int64_t tile_keys) {
    const QueryStrip<kLanes>& strip = strips_[s];
    const int64_t first = std::max<int64_t>(tile_key, strip.any.first);
    const int64_t keys = std::min<int64_t>(tile_key + tile_keys, strip.any.end) - first;
    if (keys <= 0) return;
    A* out = out_ + s * kLanes * width_;
    tile_multiply<A>(keys, kLanes, width_, {k.at(first - tile_key), k.stride, 1},
                     q_columns_ + s * kLanes * width_, kLanes, scores_, kLanes, false);
    mask_scores(strip, first, keys, static_cast<A>(p_.scale), scores_);
    A rescale[kLanes];
    advance_softmax(softmax_[s], keys, scores_, rescale);
    rescale_rows(rescale, strip.count, width_, out);
    if (dropout_) {
      drop_scores<kLanes>(*dropout_, batch_, head_, first_query_ + s * kLanes, first, keys,
                          scores_);
    }
    tile_multiply<A>(strip.count, width_, keys, {scores_, 1, kLanes}, v.at(first - tile_key),
                     v.stride, out, width_, true);
  }

  void store(T* o, A* log_sum) const {
    for (int64_t s = 0; s < strip_count_; ++s) {
      for (int64_t i = 0; i < strips_[s].count; ++i) {
        const int64_t query = first_query_ + s * kLanes + i;
        const A sum = softmax_[s].sum[i], share = sum > 0 ? A{1} / sum : A{0};
        const A* from = out_ + (s * kLanes + i) * width_;
        T* to = o + ((batch_ * p_.sizes.queries + query) * p_.sizes.heads + head_) * width_;
#pragma omp simd
        for (int64_t d = 0; d < width_; ++d) to[d] = static_cast<T>(from[d] * share);
        log_sum[(batch_ * p_.sizes.heads + head_) * p_.sizes.queries + query] =
            strips_[s].first[i] == strips_[s].end[i] ? std::numeric_limits<A>::infinity()
                                                     : softmax_[s].largest[i] + std::log(sum);
      }
    }
  }

  const FlashProblem& p_;
  std::optional<AttentionDropout> dropout_;
  const int64_t batch_, head_, first_query_, width_;
  Scratch<A> scratch_;
  A *q_columns_, *out_, *scores_, *k_buffer_, *v_buffer_;
  int64_t strip_count_ = 0;
  QueryStrip<kLanes> strips_[kTile / kLanes];
  RunningSoftmax<A, kLanes> softmax_[kTile / kLanes];
};

template <class T, int64_t kLanes>
void forward_tiles(const Cpu& cpu, const FlashProblem& problem, const T* q, const T* k, const T* v,
                   T* o, Accumulator<T>* log_sum) {
  const AttentionSizes& n = problem.sizes;
  const int64_t tiles = (n.queries + kTile - 1) / kTile;
  const int64_t queries = std::clamp(n.queries, kLanes, kTile);
  const int64_t products = std::max<int64_t>(1, 2 * queries * n.keys * n.head_dim);
  const int64_t together = std::max<int64_t>(1, kPieceProducts / products);
  parallel_blocks(cpu, n.batch * n.heads * tiles, together, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t head = task / tiles;
      ForwardTile<T, kLanes>(cpu.ctx, problem, head / n.heads, head % n.heads, task % tiles * kTile)
          .run(q, k, v, o, log_sum);
    }
  });
}

}  // namespace

template <class T>
void flash_forward(const Cpu& cpu, const FlashProblem& problem, const T* q, const T* k, const T* v,
                   T* o, Accumulator<T>* log_sum) {
  problem.sizes.queries <= kFewLanes
      ? forward_tiles<T, kFewLanes>(cpu, problem, q, k, v, o, log_sum)
      : forward_tiles<T, kManyLanes>(cpu, problem, q, k, v, o, log_sum);
}

#define XT_FLASH_FORWARD(T)                                                                      \
  template void flash_forward(const Cpu&, const FlashProblem&, const T*, const T*, const T*, T*, \
                              Accumulator<T>*);
XT_FLASH_FORWARD(double)
XT_FLASH_FORWARD(float)
XT_FLASH_FORWARD(BFloat16)
#undef XT_FLASH_FORWARD

}  // namespace xtrain
