#include "model/kv_cache.h"

#include "core/copy.h"
#include "core/error.h"
#include "ops/append_rows/append_rows.h"

namespace xtrain {

void LayerCache::append(const Context& ctx, const Tensor& k, const Tensor& v) const {
  append_rows(ctx, k, v, start, added, keys, values);
}

KvCache::KvCache(const Context& ctx, const ModelConfig& config, int64_t rows, int64_t capacity,
                 const Exec& exec)
    : capacity_(capacity), held_(rows, 0), adding_(rows, 0), ended_(rows, false) {
  check_input(capacity >= 1 && capacity <= config.max_position_embeddings,
              "cache: capacity must lie in 1..", config.max_position_embeddings,
              " (model.max_position_embeddings); got ", capacity);
  lengths_ = zeros(ctx, {rows}, Dtype::i32);
  added_ = zeros(ctx, {rows}, Dtype::i32);
  ends_ = zeros(ctx, {rows}, Dtype::i32);
  const Shape shape{rows, capacity, config.num_key_value_heads, config.head_dim};
  const auto make = exec.attention == AttentionKind::flash ? empty : zeros;
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    layers_.push_back(
        {make(ctx, shape, exec.dtype), make(ctx, shape, exec.dtype), lengths_, added_, ends_});
  }
}

void KvCache::end_row(const Context& ctx, int64_t row) {
  held_[row] = 0;
  ended_[row] = true;
  fill(ctx, lengths_.slice(0, row, 1), 0.0);
}

void KvCache::rewind(const Context& ctx, std::span<const int64_t> lengths) {
  check(lengths.size() == held_.size(), "cache: ", held_.size(), " rows need as many lengths; got ",
        lengths.size());
  for (size_t row = 0; row < lengths.size(); ++row) {
    check(lengths[row] >= 0 && lengths[row] <= held_[row], "cache: row ", row, " holds ",
          held_[row], " tokens; it cannot go back to ", lengths[row]);
  }
  held_.assign(lengths.begin(), lengths.end());
  const std::vector<int32_t> numbers(lengths.begin(), lengths.end());
  copy(ctx, from_host(ctx, numbers, {rows()}), lengths_);
}

void KvCache::plan(const Context& ctx, std::span<const int64_t> counts) {
  check(counts.size() == held_.size(), "cache: ", held_.size(), " rows need as many counts; got ",
        counts.size());
  for (size_t row = 0; row < counts.size(); ++row) {
    check_input(held_[row] + counts[row] <= capacity_, "cache: row ", row, " holds ", held_[row],
                " of ", capacity_, " tokens; ", counts[row], " more do not fit");
  }
  set_added(ctx, counts);
  for (size_t row = 0; row < counts.size(); ++row) held_[row] += counts[row];
}

void KvCache::plan_one(const Context& ctx) {
  std::vector<int64_t> counts(held_.size());
  for (size_t row = 0; row < counts.size(); ++row) counts[row] = ended_[row] ? 0 : 1;
  plan(ctx, counts);
}

void KvCache::begin(const Context& ctx) {
  add_counts(ctx, lengths_, added_, ends_);
}

void KvCache::finish(const Context& ctx) {
  copy(ctx, ends_, lengths_);
}

// Nothing goes to the device as long as every pass brings the same.
void KvCache::set_added(const Context& ctx, std::span<const int64_t> counts) {
  if (std::equal(counts.begin(), counts.end(), adding_.begin())) return;
  adding_.assign(counts.begin(), counts.end());
  const std::vector<int32_t> numbers(counts.begin(), counts.end());
  copy(ctx, from_host(ctx, numbers, {rows()}), added_);
}

AttentionMask KvCache::mask() const {
  AttentionMask mask;
  mask.position_base = lengths_;
  mask.key_length = ends_;
  mask.is_checked = true;  // plan has counted
  return mask;
}

}  // namespace xtrain
