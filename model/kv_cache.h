#pragma once
// The keys and values of tokens that a model has seen, so that each further token costs one token's
// work. Memory for all tokens is taken at once: [B, capacity, KV, D] twice a layer. Row b holds
// lengths[b] tokens from position 0 on, and rows may be of different lengths.
//
// What a pass reads that changes from token to token, the lengths, lies in device memory and is
// moved on there, so that a pass of one token a row can be captured and replayed. The host counts
// along, for the one thing that it must know before: whether there is room.

#include <cstdint>
#include <span>
#include <vector>

#include "model/config.h"
#include "model/exec.h"
#include "ops/attention/attention.h"

namespace xtrain {

// One layer's share.
struct LayerCache {
  Tensor keys, values;  // [B, capacity, KV, D]; keys as attention reads them, normed and turned
  Tensor start, added, end;  // [B] i32, the cache's: held before the pass, by it, and behind it

  // Writes the first added[b] of the tokens of k and v [B, T, KV, D] behind what row b holds.
  void append(const Context& ctx, const Tensor& k, const Tensor& v) const;
};

class KvCache {
 public:
  // Empty rows. InputError unless capacity lies in 1..max_position_embeddings. Memory that holds no
  // token is not touched by flash attention; composed attention needs it finite.
  KvCache(const Context& ctx, const ModelConfig& config, int64_t rows, int64_t capacity,
          const Exec& exec);

  int64_t rows() const { return static_cast<int64_t>(held_.size()); }
  int64_t length(int64_t row) const { return held_[row]; }  // tokens of the row

  // The row ends: it is emptied and further passes give it no token, see no key of it and leave its
  // results without meaning.
  void end_row(const Context& ctx, int64_t row);

  // Row b goes back to its first lengths[b] tokens, so that another continuation can be read behind
  // them. Error for more than it holds.
  void rewind(const Context& ctx, std::span<const int64_t> lengths);

  // --- a pass, as the model calls it ---
  // What it brings is planned by the host. Then begin, the layers' appends and finish work on the
  // device, which may be recorded for passes of one token.

  // The next pass brings counts[b] tokens to row b, which the row is counted to hold from now on.
  // InputError naming row and lengths where one has no room for them; nothing has changed then.
  void plan(const Context& ctx, std::span<const int64_t> counts);
  // One token to every row that has not ended.
  void plan_one(const Context& ctx);
  void begin(const Context& ctx);
  // The tokens of the pass are held.
  void finish(const Context& ctx);

  const LayerCache& layer(int64_t i) const { return layers_[i]; }
  const Tensor& lengths() const { return lengths_; }  // [B] i32, before the pass
  AttentionMask mask() const;                         // of the pass's queries

 private:
  void set_added(const Context& ctx, std::span<const int64_t> counts);

  int64_t capacity_;
  std::vector<LayerCache> layers_;
  Tensor lengths_, added_, ends_;  // [B] i32: before the pass, by it, and behind it
  std::vector<int64_t> held_;      // the host's count of the same
  std::vector<int64_t> adding_;    // what added_ holds
  std::vector<bool> ended_;
};

}  // namespace xtrain
