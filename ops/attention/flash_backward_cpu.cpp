// Each task owns a key head of one sequence with the query heads that share it. Scores are computed
// again tile by tile, and every product is added to the accumulators of dq, dk and dv in a fixed
// order.

#include <optional>
#include <vector>

#include "core/cpu/vector_math.h"
#include "core/parallel.h"
#include "ops/attention/flash_tile.h"

namespace xtrain {
namespace {

using namespace flash;

constexpr int64_t kLanes = kManyLanes;

using Contiguous = std::integral_constant<int64_t, 1>;

template <class A, class Out, class Stride>
void store_row(bool accumulate, int64_t width, const A* x, Out* row, Stride stride) {
#pragma omp simd
  for (int64_t d = 0; d < width; ++d) {
    Out& target = row[d * stride];
    target = static_cast<Out>(accumulate ? static_cast<A>(target) + x[d] : x[d]);
  }
}

// gradient rows = (+=) x [count, width] of one head.
template <class T, class A>
void store_rows(const FlashGradient& gradient, int64_t batch, int64_t head, int64_t count,
                int64_t width, const A* x) {
  if (!gradient.data) return;
  const auto store = [&](auto* data) {
    using Out = std::remove_pointer_t<decltype(data)>;
    for (int64_t i = 0; i < count; ++i) {
      const A* from = x + i * width;
      Out* to = data + batch * gradient.batch + head * gradient.head + i * gradient.time;
      // Where a stride is a variable, compilers write vectors element by element.
      gradient.dim == 1 ? store_row(gradient.accumulate, width, from, to, Contiguous{})
                        : store_row(gradient.accumulate, width, from, to, gradient.dim);
    }
  };
  gradient.wide ? store(static_cast<A*>(gradient.data)) : store(static_cast<T*>(gradient.data));
}

template <class T>
struct FlashTensors {
  const T *q, *k, *v, *o, *dy;
  const Accumulator<T>* log_sum;
};

struct FlashGradients {
  FlashGradient dq, dk, dv;
};

template <class T>
class BackwardHeads {
  using A = Accumulator<T>;

 public:
  BackwardHeads(const Context& ctx, const FlashProblem& p, int64_t batch, int64_t kv_head)
      : p_(p),
        n_(p.sizes),
        batch_(batch),
        kv_head_(kv_head),
        width_(n_.head_dim),
        q_size_(n_.queries * width_),
        k_size_(n_.keys * width_),
        scratch_(ctx, {q_size_, k_size_, k_size_, n_.queries, kTile * width_, kTile * width_,
                       kTile * kLanes, kTile * kLanes, kTile * kLanes, widened<T>(q_size_),
                       widened<T>(q_size_), widened<T>(k_size_), widened<T>(k_size_)}),
        dq_(scratch_.take(q_size_)),
        dk_(scratch_.take(k_size_)),
        dv_(scratch_.take(k_size_)),
        delta_(scratch_.take(n_.queries)),
        k_columns_(scratch_.take(kTile * width_)),
        v_columns_(scratch_.take(kTile * width_)),
        p_tile_(scratch_.take(kTile * kLanes)),
        ds_tile_(scratch_.take(kTile * kLanes)),
        factors_(scratch_.take(kTile * kLanes)),
        q_buffer_(scratch_.take(widened<T>(q_size_))),
        dy_buffer_(scratch_.take(widened<T>(q_size_))),
        k_buffer_(scratch_.take(widened<T>(k_size_))),
        v_buffer_(scratch_.take(widened<T>(k_size_))) {
    if (p.drops) dropout_.emplace(p.dropout);
    for (int64_t query = 0; query < n_.queries; query += kLanes) {
      strips_.push_back(query_strip<kLanes>(p.visible, batch, query));
    }
    keys_ = union_of(strips_.data(), static_cast<int64_t>(strips_.size()));
  }

  void run(const FlashTensors<T>& x, const FlashGradients& gradients) {
    std::fill_n(dk_, k_size_, A{0});
    std::fill_n(dv_, k_size_, A{0});
    k_ = rows_of(x.k + batch_ * p_.k.batch + kv_head_ * p_.k.head, p_.k.time, keys_.end, width_,
                 k_buffer_);
    v_ = rows_of(x.v + batch_ * p_.v.batch + kv_head_ * p_.v.head, p_.v.time, keys_.end, width_,
                 v_buffer_);
    for (int64_t g = 0; g < n_.group(); ++g) {
      enter_head(x, kv_head_ * n_.group() + g);
      for (int64_t key = keys_.first / kTile * kTile; key < keys_.end; key += kTile) {
        add_key_tile(key, std::min<int64_t>(key + kTile, keys_.end));
      }
      store_rows<T>(gradients.dq, batch_, head_, n_.queries, width_, dq_);
    }
    store_rows<T>(gradients.dk, batch_, kv_head_, n_.keys, width_, dk_);
    store_rows<T>(gradients.dv, batch_, kv_head_, n_.keys, width_, dv_);
  }

 private:
  void enter_head(const FlashTensors<T>& x, int64_t head) {
    head_ = head;
    log_sum_ = x.log_sum + (batch_ * n_.heads + head) * n_.queries;
    std::fill_n(dq_, q_size_, A{0});
    q_ = rows_of(x.q + batch_ * p_.q.batch + head * p_.q.head, p_.q.time, n_.queries, width_,
                 q_buffer_);
    const int64_t start = (batch_ * n_.queries * n_.heads + head) * width_;
    const int64_t stride = n_.heads * width_;
    dy_ = rows_of(x.dy + start, stride, n_.queries, width_, dy_buffer_);
    for (int64_t t = 0; t < n_.queries; ++t) {
      const T* o = x.o + start + t * stride;
      const A* dy = dy_.at(t);
      A dot = 0;
#pragma omp simd reduction(+ : dot)
      for (int64_t d = 0; d < width_; ++d) dot += static_cast<A>(o[d]) * dy[d];
      delta_[t] = dot;
    }
  }

  void add_key_tile(int64_t first_key, int64_t end_key) {
    for (int64_t key = first_key; key < end_key; key += kLanes) {
      const int64_t count = std::min(kLanes, end_key - key), place = (key - first_key) * width_;
      transpose_strip<kLanes>(k_.at(key), k_.stride, count, width_, k_columns_ + place);
      transpose_strip<kLanes>(v_.at(key), v_.stride, count, width_, v_columns_ + place);
    }
    const int64_t strips = static_cast<int64_t>(strips_.size());
    for (int64_t first = 0; first < strips; first += kTile / kLanes) {
      const int64_t end = std::min(strips, first + kTile / kLanes);
      for (int64_t key = first_key; key < end_key; key += kLanes) {
        const int64_t place = (key - first_key) * width_;
        add_key_strip(first, end, key, std::min(kLanes, end_key - key), k_columns_ + place,
                      v_columns_ + place);
      }
    }
  }

  // What the keys of a strip and the queries of strips [first, end) give each other.
  void add_key_strip(int64_t first, int64_t end, int64_t key, int64_t keys, const A* k_columns,
                     const A* v_columns) {
    while (first < end && !strips_[first].sees_some(key, key + keys)) ++first;
    while (first < end && !strips_[end - 1].sees_some(key, key + keys)) --end;
    if (first == end) return;
    const int64_t query = first * kLanes;
    const int64_t queries = std::min(end * kLanes, n_.queries) - query;
    tile_multiply<A>(queries, kLanes, width_, {q_.at(query), q_.stride, 1}, k_columns, kLanes,
                     p_tile_, kLanes, false);
    tile_multiply<A>(queries, kLanes, width_, {dy_.at(query), dy_.stride, 1}, v_columns, kLanes,
                     ds_tile_, kLanes, false);
    for (int64_t s = first; s < end; ++s) {
      scores_to_probabilities(strips_[s], s * kLanes, key, p_tile_ + (s - first) * kLanes * kLanes);
    }
    if (dropout_) draw_tile(query, queries, key);
    probabilities_to_gradients(query, queries);
    tile_multiply<A>(keys, width_, queries, {p_tile_, 1, kLanes}, dy_.at(query), dy_.stride,
                     dv_ + key * width_, width_, true);
    tile_multiply<A>(keys, width_, queries, {ds_tile_, 1, kLanes}, q_.at(query), q_.stride,
                     dk_ + key * width_, width_, true);
    tile_multiply<A>(queries, width_, keys, {ds_tile_, kLanes, 1}, k_.at(key), k_.stride,
                     dq_ + query * width_, width_, true);
  }

  // s [queries of a strip, kLanes keys] becomes exp(scale s - log_sum), 0 where the mask hides.
  void scores_to_probabilities(const QueryStrip<kLanes>& strip, int64_t query, int64_t key,
                               A* s) const {
    const A scale = static_cast<A>(p_.scale);
    const bool all = strip.sees_all(key, key + kLanes);
    for (int64_t i = 0; i < strip.count; ++i) {
      const A log_sum = log_sum_[query + i];
      A* row = s + i * kLanes;
#pragma omp simd
      for (int64_t j = 0; j < kLanes; ++j) row[j] = vector_exp(scale * row[j] - log_sum);
      if (all) continue;
      const int64_t first = strip.first[i] - key, end = strip.end[i] - key;
#pragma omp simd
      for (int64_t j = 0; j < kLanes; ++j) row[j] = (first <= j) & (j < end) ? row[j] : A{0};
    }
  }

  void draw_tile(int64_t query, int64_t queries, int64_t key) {
    for (int64_t row = 0; row < queries; row += kLanes) {
      for (int64_t quad = 0; quad < kLanes / 4; ++quad) {
        A drawn[4][kLanes];
        draw_factors(*dropout_, batch_, head_, query + row, key / 4 + quad, drawn);
        for (int64_t i = 0; i < kLanes; ++i) {
          for (int64_t c = 0; c < 4; ++c) factors_[(row + i) * kLanes + 4 * quad + c] = drawn[c][i];
        }
      }
    }
  }

  // From p and dp (before dropout's factors) to dropped p and scale p (dp - delta).
  void probabilities_to_gradients(int64_t query, int64_t queries) {
    const A scale = static_cast<A>(p_.scale);
    for (int64_t i = 0; i < queries; ++i) {
      const A delta = delta_[query + i];
      A *p = p_tile_ + i * kLanes, *ds = ds_tile_ + i * kLanes;
      if (dropout_) {
        const A* factor = factors_ + i * kLanes;
#pragma omp simd
        for (int64_t j = 0; j < kLanes; ++j) {
          ds[j] = scale * p[j] * (factor[j] * ds[j] - delta);
          p[j] *= factor[j];
        }
      } else {
#pragma omp simd
        for (int64_t j = 0; j < kLanes; ++j) ds[j] = scale * p[j] * (ds[j] - delta);
      }
    }
  }

  const FlashProblem& p_;
  std::optional<AttentionDropout> dropout_;
  const AttentionSizes& n_;
  const int64_t batch_, kv_head_, width_, q_size_, k_size_;
  Scratch<A> scratch_;
  A *dq_, *dk_, *dv_;          // [queries, D], [keys, D], [keys, D]
  A* delta_;                   // [queries]: dy . o
  A *k_columns_, *v_columns_;  // strips [D, kLanes] of a tile of keys
  A *p_tile_, *ds_tile_;       // [queries of a tile, kLanes keys]
  A* factors_;                 // the same, of dropout
  A *q_buffer_, *dy_buffer_, *k_buffer_, *v_buffer_;
  std::vector<QueryStrip<kLanes>> strips_;
  KeyRange keys_;                   // that some query sees
  int64_t head_ = 0;                // of the queries
  const A* log_sum_ = nullptr;      // of the head
  Rows<A> q_{}, k_{}, v_{}, dy_{};  // of the heads
};

}  // namespace

template <class T>
void flash_backward(const Cpu& cpu, const FlashProblem& problem, const T* q, const T* k, const T* v,
                    const T* o, const Accumulator<T>* log_sum, const T* dy, const FlashGradient& dq,
                    const FlashGradient& dk, const FlashGradient& dv) {
  const int64_t kv_heads = problem.sizes.kv_heads;
  parallel_for(cpu, problem.sizes.batch * kv_heads, [&](int64_t task) {
    BackwardHeads<T>(cpu.ctx, problem, task / kv_heads, task % kv_heads)
        .run({q, k, v, o, dy, log_sum}, {dq, dk, dv});
  });
}

#define XT_FLASH_BACKWARD(T)                                                                    \
  template void flash_backward(const Cpu&, const FlashProblem&, const T*, const T*, const T*,   \
                               const T*, const Accumulator<T>*, const T*, const FlashGradient&, \
                               const FlashGradient&, const FlashGradient&);
XT_FLASH_BACKWARD(double)
XT_FLASH_BACKWARD(float)
XT_FLASH_BACKWARD(BFloat16)
#undef XT_FLASH_BACKWARD

}  // namespace xtrain
