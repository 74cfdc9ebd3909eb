#include "train/data/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "core/error.h"
#include "train/data/byte_alphabet.h"

namespace xtrain {
namespace {

constexpr uint64_t kNoPair = ~uint64_t{0};
constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
constexpr size_t kMaxPiece = size_t{1} << 31;
constexpr size_t kShortPiece = 128;  // up to here a look at all ranks costs less than a heap
constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();

uint64_t key_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// The upper bits of a product with an odd constant are well mixed.
uint64_t hash_of(uint64_t pair) {
  return pair * 0x9E3779B97F4A7C15u;
}

}  // namespace

MergeTable::MergeTable(size_t merges)
    : slots_(std::bit_ceil(std::max<size_t>(2 * merges, 64)), Slot{kNoPair, {}}),
      shift_(64 - std::countr_zero(slots_.size())) {
  present_.resize(slots_.size() / 16);
}

// Where the pair is or would go.
size_t MergeTable::slot_of(uint64_t pair) const {
  size_t slot = hash_of(pair) >> shift_;
  while (slots_[slot].pair != pair && slots_[slot].pair != kNoPair) {
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slot;
}

bool MergeTable::insert(TokenPair pair, Merge merge) {
  const uint64_t key = key_of(pair.first, pair.second);
  Slot& slot = slots_[slot_of(key)];
  if (slot.pair == key) return false;
  slot = {key, merge};
  const uint64_t bit = hash_of(key) >> (shift_ - 2);
  present_[bit / 64] |= uint64_t{1} << (bit % 64);
  return true;
}

MergeTable::Merge MergeTable::find(int32_t left, int32_t right) const {
  const uint64_t key = key_of(left, right);
  const uint64_t bit = hash_of(key) >> (shift_ - 2);
  if ((present_[bit / 64] >> (bit % 64) & 1) == 0) return {};
  return slots_[slot_of(key)].merge;
}

Bpe::Bpe(std::vector<std::string> tokens, std::vector<TokenPair> merges, bool whole_first,
         std::string_view where)
    : tokens_(std::move(tokens)),
      merges_(std::move(merges)),
      whole_first_(whole_first),
      table_(merges_.size()) {
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id].empty()) continue;
    const auto [known, added] = id_of_token_.emplace(tokens_[id], static_cast<int32_t>(id));
    check_input(added, where, ": ids ", known->second, " and ", id, " are the same token \"",
                spell_bytes(tokens_[id]), '"');
  }
  for (int byte = 0; byte < 256; ++byte) {
    const std::string token(1, static_cast<char>(byte));
    const auto found = id_of_token_.find(token);
    check_input(found != id_of_token_.end(), where, ": a byte-level vocabulary must have a token ",
                "for every byte; none is \"", spell_bytes(token), '"');
    id_of_byte_.push_back(found->second);
  }
  for (size_t rank = 0; rank < merges_.size(); ++rank) {
    const auto& left = tokens_.at(static_cast<size_t>(merges_[rank].first));
    const auto& right = tokens_.at(static_cast<size_t>(merges_[rank].second));
    const auto result = id_of_token_.find(left + right);
    check_input(result != id_of_token_.end(), where, ": merge ", rank, " gives \"",
                spell_bytes(left + right), "\", which is no token");
    check_input(table_.insert(merges_[rank], {static_cast<int32_t>(rank), result->second}), where,
                ": merge ", rank, " of \"", spell_bytes(left), "\" and \"", spell_bytes(right),
                "\" is listed twice");
    result_of_rank_.push_back(result->second);
  }
  for (const int32_t left : id_of_byte_) {
    for (const int32_t right : id_of_byte_) rank_of_bytes_.push_back(rank_of(left, right));
  }
}

int32_t Bpe::rank_of(int32_t left, int32_t right) const {
  const int32_t rank = table_.find(left, right).rank;
  return rank < 0 ? kNoRank : rank;
}

// Makes the symbol at `left` and the one after it wait for their turn, if they can merge.
void Bpe::push_candidate(uint32_t left, BpeScratch& scratch) const {
  const auto& symbol = scratch.symbols[left];
  if (symbol.next == kNone) return;
  const int32_t rank = table_.find(symbol.id, scratch.symbols[symbol.next].id).rank;
  if (rank < 0) return;
  scratch.candidates.push_back(uint64_t{static_cast<uint32_t>(rank)} << 32 | left);
  std::push_heap(scratch.candidates.begin(), scratch.candidates.end(), std::greater<>());
}

void Bpe::join(uint32_t left, int32_t result, BpeScratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& symbol = symbols[left];
  auto& gone = symbols[symbol.next];
  symbol.id = result;
  symbol.next = gone.next;
  gone.id = -1;
  if (symbol.next != kNone) symbols[symbol.next].previous = left;
  push_candidate(left, scratch);
  if (symbol.previous != kNone) push_candidate(symbol.previous, scratch);
}

// The lowest rank joins first, of equals the leftmost.
void Bpe::encode_short(std::string_view piece, BpeScratch& scratch,
                       std::vector<int32_t>& out) const {
  scratch.ids.resize(kShortPiece);
  scratch.ranks.resize(kShortPiece);
  int32_t* const ids = scratch.ids.data();
  int32_t* const ranks = scratch.ranks.data();
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(piece[i]); };
  size_t pairs = piece.size() - 1;
  for (size_t i = 0; i < pairs; ++i) ranks[i] = rank_of_bytes_[256u * byte(i) + byte(i + 1)];
  for (size_t i = 0; i <= pairs; ++i) ids[i] = id_of_byte_[byte(i)];
  while (pairs > 0) {
    int32_t lowest = kNoRank;
    for (size_t i = 0; i < pairs; ++i) lowest = std::min(lowest, ranks[i]);
    if (lowest == kNoRank) break;
    const auto at = static_cast<size_t>(std::find(ranks, ranks + pairs, lowest) - ranks);
    --pairs;
    std::copy(ids + at + 2, ids + pairs + 2, ids + at + 1);
    std::copy(ranks + at + 1, ranks + pairs + 1, ranks + at);
    ids[at] = result_of_rank_[static_cast<size_t>(lowest)];
    if (at > 0) ranks[at - 1] = rank_of(ids[at - 1], ids[at]);
    if (at < pairs) ranks[at] = rank_of(ids[at], ids[at + 1]);
  }
  out.insert(out.end(), ids, ids + pairs + 1);
}

void Bpe::encode_long(std::string_view piece, BpeScratch& scratch,
                      std::vector<int32_t>& ids) const {
  auto& symbols = scratch.symbols;
  auto& candidates = scratch.candidates;
  symbols.clear();
  candidates.clear();
  for (uint32_t i = 0; i < piece.size(); ++i) {
    const int32_t id = id_of_byte_[static_cast<unsigned char>(piece[i])];
    symbols.push_back({id, i == 0 ? kNone : i - 1, i + 1 == piece.size() ? kNone : i + 1});
  }
  for (uint32_t i = 0; i < piece.size(); ++i) push_candidate(i, scratch);
  while (!candidates.empty()) {
    std::pop_heap(candidates.begin(), candidates.end(), std::greater<>());
    const auto rank = static_cast<int32_t>(candidates.back() >> 32);
    const auto left = static_cast<uint32_t>(candidates.back());
    candidates.pop_back();
    const auto& symbol = symbols[left];
    if (symbol.id < 0 || symbol.next == kNone) continue;
    // Neighbours that have changed since are another pair, with another rank.
    const auto merge = table_.find(symbol.id, symbols[symbol.next].id);
    if (merge.rank == rank) join(left, merge.result, scratch);
  }
  for (uint32_t i = 0; i != kNone; i = symbols[i].next) ids.push_back(symbols[i].id);
}

void Bpe::encode(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& ids) const {
  check_input(piece.size() <= kMaxPiece, "tokenizer: a piece of text has ", piece.size(),
              " bytes without a cut; at most ", kMaxPiece, " are possible");
  if (piece.empty()) return;
  if (whole_first_) {
    const auto whole = id_of_token_.find(piece);
    if (whole != id_of_token_.end()) return ids.push_back(whole->second);
  }
  if (piece.size() <= kShortPiece) return encode_short(piece, scratch, ids);
  encode_long(piece, scratch, ids);
}

}  // namespace xtrain
