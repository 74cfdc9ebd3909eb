#pragma once
// Decoding over a cache beside passes over whole sequences.

#include <span>
#include <vector>

#include "model/model_checks.h"

namespace xtrain {

using Rows = std::vector<std::vector<int32_t>>;

inline Rows random_rows(std::span<const int64_t> lengths, int64_t vocab_size) {
  const RandomStream stream = random_stream(31, 0, 0);
  Rows rows;
  for (size_t b = 0; b < lengths.size(); ++b) {
    rows.emplace_back(lengths[b]);
    for (int64_t t = 0; t < lengths[b]; ++t) {
      rows[b][t] = static_cast<int32_t>(random_below(stream, b, t, vocab_size));
    }
  }
  return rows;
}

inline Rows beginnings(const Rows& rows, std::span<const int64_t> lengths) {
  Rows cut;
  for (size_t b = 0; b < rows.size(); ++b) {
    cut.emplace_back(rows[b].begin(), rows[b].begin() + lengths[b]);
  }
  return cut;
}

// One token of each row.
inline Tensor tokens_at(const Context& ctx, const Rows& rows, std::span<const int64_t> at) {
  std::vector<int32_t> ids;
  for (size_t b = 0; b < rows.size(); ++b) ids.push_back(rows[b][at[b]]);
  return from_host(ctx, ids, {static_cast<int64_t>(rows.size())});
}

// The logits behind each prefix of the rows from `first` tokens on: by the cache, and of the whole
// prefix every time.
struct BothWays {
  std::vector<std::vector<double>> cached, full;
};

inline BothWays both_ways(const Context& ctx, TinyTransformer& model, const Rows& rows,
                          std::vector<int64_t> first, int64_t steps, int64_t capacity,
                          const Exec& exec) {
  BothWays ways;
  KvCache cache(ctx, model.config(), static_cast<int64_t>(rows.size()), capacity, exec);
  ways.cached.push_back(as_doubles(ctx, model.prefill(ctx, cache, beginnings(rows, first), exec)));
  ways.full.push_back(as_doubles(ctx, model.next_logits(ctx, beginnings(rows, first), exec)));
  for (int64_t n = 0; n < steps; ++n) {
    const Tensor tokens = tokens_at(ctx, rows, first);
    ways.cached.push_back(as_doubles(ctx, model.decode(ctx, cache, tokens, exec)));
    for (int64_t& length : first) ++length;
    ways.full.push_back(as_doubles(ctx, model.next_logits(ctx, beginnings(rows, first), exec)));
  }
  return ways;
}

}  // namespace xtrain
