#pragma once
// Byte-pair encoding: a piece of text begins as one token a byte, and the neighbours whose merge
// was learned first join, again and again, until no neighbours can (Sennrich et al., 2016; on
// bytes, Radford et al., 2019).

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace xtrain {

using TokenPair = std::pair<int32_t, int32_t>;

// (left, right) -> order and result of the merge. A hash table with open addressing. Most pairs
// that are looked for do not merge: a bit for each of four times as many hashes as there are slots
// says so from a core's own cache, where the table does not fit.
class MergeTable {
 public:
  struct Merge {
    int32_t rank = -1;  // place in the list of merges; -1: the pair does not merge
    int32_t result = -1;
  };

  explicit MergeTable(size_t merges);
  bool insert(TokenPair pair, Merge merge);  // false: the pair is in the table already
  Merge find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t pair;
    Merge merge;
  };
  size_t slot_of(uint64_t pair) const;

  std::vector<uint64_t> present_;
  std::vector<Slot> slots_;
  int shift_;
};

// Room that one caller of Bpe::encode keeps between calls.
struct BpeScratch {
  struct Symbol {
    int32_t id;  // -1: joined to the symbol before
    uint32_t previous, next;
  };
  std::vector<Symbol> symbols;
  std::vector<uint64_t> candidates;  // a heap; rank above place
  std::vector<int32_t> ids, ranks;   // of a short piece: its tokens, and the merge of each with the
                                     // next one
};

class Bpe {
 public:
  // tokens: the bytes of each id; an empty one is no token. merges: pairs of ids, first learned
  // first. whole_first: a piece that is a token is never built from merges ("ignore_merges").
  // Throws InputError, beginning with `where`, unless each byte has a token, no two tokens have the
  // same bytes, and each merge is listed once and gives a token.
  Bpe(std::vector<std::string> tokens, std::vector<TokenPair> merges, bool whole_first,
      std::string_view where);
  Bpe(Bpe&&) = default;
  Bpe(const Bpe&) = delete;  // the views below would look at the other's tokens

  // Appends the ids of a piece of at most 2^31 bytes, in time n log n in its length.
  void encode(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& ids) const;

  const std::vector<std::string>& tokens() const { return tokens_; }
  const std::vector<TokenPair>& merges() const { return merges_; }
  bool whole_first() const { return whole_first_; }

 private:
  void encode_short(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& ids) const;
  void encode_long(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& ids) const;
  int32_t rank_of(int32_t left, int32_t right) const;
  void push_candidate(uint32_t left, BpeScratch& scratch) const;
  void join(uint32_t left, int32_t result, BpeScratch& scratch) const;

  std::vector<std::string> tokens_;
  std::vector<TokenPair> merges_;
  bool whole_first_;
  MergeTable table_;
  std::vector<int32_t> id_of_byte_;
  std::vector<int32_t> rank_of_bytes_;  // the merge of any two bytes, 256 * left + right
  std::vector<int32_t> result_of_rank_;
  std::unordered_map<std::string_view, int32_t> id_of_token_;  // views of tokens_
};

}  // namespace xtrain
