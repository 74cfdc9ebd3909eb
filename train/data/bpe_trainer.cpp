#include "train/data/bpe_trainer.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "train/data/byte_alphabet.h"
#include "train/data/utf8.h"

namespace xtrain {
namespace {

constexpr int32_t kNone = -1;

// A place of the text where a token begins; places are bytes of the pieces laid end to end.
struct Place {
  int32_t id;              // kNone: inside the token that begins before it
  int32_t previous, next;  // neighbours in the same piece, or kNone
  int32_t piece;
};

struct PairState {
  TokenPair pair;
  int64_t count = 0;
  std::vector<int32_t> places;  // where it begins or began, ascending
  size_t first = 0;             // the places before this one are gone for good
};

// How much a pair deserves to be next: count first, then the earlier place. Both only fall with
// time.
struct Claim {
  int64_t count;
  int32_t place;
  int32_t pair;
  bool operator<(const Claim& other) const {
    return std::tuple(count, -int64_t{place}) < std::tuple(other.count, -int64_t{other.place});
  }
};

class MergeLearner {
 public:
  MergeLearner(const PieceCounts& pieces, int64_t min_frequency);

  // The best pair, made token `id` everywhere; false when none is frequent enough.
  bool merge_best(int32_t id, TokenPair& merged);

 private:
  void lay_out(std::string_view piece, int32_t index);
  bool stands_at(const PairState& pair, int32_t place) const;
  int32_t first_place(PairState& pair) const;
  PairState& state_of(int32_t left, int32_t right);
  void gain(int32_t place, std::vector<int32_t>& touched);
  void lose(int32_t place);
  void claim(int32_t pair);
  void merge_at(int32_t place, int32_t id, std::vector<int32_t>& touched);

  const std::vector<int64_t>& counts_;
  int64_t min_frequency_;
  std::vector<Place> places_;
  std::vector<PairState> pairs_;
  std::unordered_map<uint64_t, int32_t> index_;
  std::vector<Claim> claims_;  // a heap
};

MergeLearner::MergeLearner(const PieceCounts& pieces, int64_t min_frequency)
    : counts_(pieces.counts()), min_frequency_(std::max<int64_t>(1, min_frequency)) {
  for (size_t i = 0; i < pieces.pieces().size(); ++i) {
    lay_out(pieces.pieces()[i], static_cast<int32_t>(i));
  }
  std::vector<int32_t> touched;
  for (size_t i = 0; i < places_.size(); ++i) gain(static_cast<int32_t>(i), touched);
  for (size_t i = 0; i < pairs_.size(); ++i) claim(static_cast<int32_t>(i));
}

void MergeLearner::lay_out(std::string_view piece, int32_t index) {
  for (size_t i = 0; i < piece.size(); ++i) {
    const auto place = static_cast<int32_t>(places_.size());
    places_.push_back({static_cast<unsigned char>(piece[i]), i == 0 ? kNone : place - 1,
                       i + 1 == piece.size() ? kNone : place + 1, index});
  }
}

bool MergeLearner::stands_at(const PairState& pair, int32_t place) const {
  const Place& left = places_[static_cast<size_t>(place)];
  return left.id == pair.pair.first && left.next != kNone &&
         places_[static_cast<size_t>(left.next)].id == pair.pair.second;
}

// The pair must have a count above 0.
int32_t MergeLearner::first_place(PairState& pair) const {
  while (!stands_at(pair, pair.places[pair.first])) ++pair.first;
  return pair.places[pair.first];
}

PairState& MergeLearner::state_of(int32_t left, int32_t right) {
  const uint64_t key = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  const auto [found, added] = index_.emplace(key, static_cast<int32_t>(pairs_.size()));
  if (added) pairs_.push_back({{left, right}, 0, {}, 0});
  return pairs_[static_cast<size_t>(found->second)];
}

// Counts the pair that begins at `place`, if one does; notes it in `touched` when it is not known.
void MergeLearner::gain(int32_t place, std::vector<int32_t>& touched) {
  const Place& left = places_[static_cast<size_t>(place)];
  if (left.next == kNone) return;
  PairState& pair = state_of(left.id, places_[static_cast<size_t>(left.next)].id);
  if (pair.places.empty()) touched.push_back(static_cast<int32_t>(&pair - pairs_.data()));
  pair.count += counts_[static_cast<size_t>(left.piece)];
  pair.places.push_back(place);
}

void MergeLearner::lose(int32_t place) {
  const Place& left = places_[static_cast<size_t>(place)];
  if (left.next == kNone) return;
  state_of(left.id, places_[static_cast<size_t>(left.next)].id).count -=
      counts_[static_cast<size_t>(left.piece)];
}

void MergeLearner::claim(int32_t index) {
  PairState& pair = pairs_[static_cast<size_t>(index)];
  if (pair.count < min_frequency_) return;
  claims_.push_back({pair.count, first_place(pair), index});
  std::push_heap(claims_.begin(), claims_.end());
}

// The token at `place` takes in the one after it.
void MergeLearner::merge_at(int32_t place, int32_t id, std::vector<int32_t>& touched) {
  Place& left = places_[static_cast<size_t>(place)];
  Place& right = places_[static_cast<size_t>(left.next)];
  if (left.previous != kNone) lose(left.previous);
  lose(left.next);
  left.id = id;
  right.id = kNone;
  left.next = right.next;
  if (left.next != kNone) places_[static_cast<size_t>(left.next)].previous = place;
  if (left.previous != kNone) gain(left.previous, touched);
  gain(place, touched);
}

bool MergeLearner::merge_best(int32_t id, TokenPair& merged) {
  while (!claims_.empty()) {
    std::pop_heap(claims_.begin(), claims_.end());
    const Claim best = claims_.back();
    claims_.pop_back();
    PairState& pair = pairs_[static_cast<size_t>(best.pair)];
    if (pair.count < min_frequency_) continue;
    if (pair.count != best.count || first_place(pair) != best.place) {
      claim(best.pair);
      continue;
    }
    merged = pair.pair;
    std::vector<int32_t> touched;
    const PairState chosen = std::exchange(pair, {merged, 0, {}, 0});
    for (const int32_t place : chosen.places) {
      if (stands_at(chosen, place)) merge_at(place, id, touched);
    }
    pairs_[static_cast<size_t>(best.pair)].count = 0;  // what overlapped has been lost as well
    for (const int32_t index : touched) claim(index);
    return true;
  }
  return false;
}

bool spells_a_byte(const std::string& text) {
  for (int byte = 0; byte < 256; ++byte) {
    if (spell_bytes(std::string(1, static_cast<char>(byte))) == text) return true;
  }
  return false;
}

}  // namespace

PieceCounts::PieceCounts(PreTokenizer pre_tokenizer) : pre_tokenizer_(std::move(pre_tokenizer)) {}

void PieceCounts::add_piece(std::string piece, int64_t count) {
  const auto [known, added] = place_.try_emplace(std::move(piece), pieces_.size());
  if (added) {
    pieces_.push_back(known->first);
    counts_.push_back(0);
  }
  counts_[known->second] += count;
}

void PieceCounts::add(std::string_view text) {
  ends_.clear();
  pre_tokenizer_.split(text, ends_);
  size_t begin = 0;
  for (const size_t end : ends_) {
    add_piece(std::string(text.substr(begin, end - begin)), 1);
    begin = end;
  }
}

void PieceCounts::add(const PieceCounts& later) {
  for (size_t i = 0; i < later.pieces_.size(); ++i) {
    add_piece(std::string(later.pieces_[i]), later.counts_[i]);
  }
}

void PieceCounts::clear() {
  place_.clear();
  pieces_.clear();
  counts_.clear();
}

std::vector<TokenPair> learn_merges(const PieceCounts& pieces, int64_t most,
                                    int64_t min_frequency) {
  check_input(!pieces.pieces().empty(), "tokenizer: the text to learn from must not be empty");
  int64_t bytes = 0;
  for (const std::string_view piece : pieces.pieces()) bytes += static_cast<int64_t>(piece.size());
  check_input(bytes < std::numeric_limits<int32_t>::max(), "tokenizer: the different words of the ",
              "text must have less than 2^31 bytes; they have ", bytes, "; use less text");
  MergeLearner learner(pieces, min_frequency);
  std::vector<TokenPair> merges;
  TokenPair merged;
  for (auto id = int32_t{256}; id < 256 + most && learner.merge_best(id, merged); ++id) {
    merges.push_back(merged);
  }
  return merges;
}

void check_training(const BpeTraining& training) {
  const auto fixed = static_cast<int64_t>(256 + training.special_tokens.size());
  constexpr int64_t kMost = 1 << 24;
  check_input(training.vocab_size >= fixed && training.vocab_size <= kMost,
              "vocab_size must lie in ", fixed, "..", kMost, ", with 256 bytes and ", fixed - 256,
              " special tokens; got ", training.vocab_size);
  check_input(training.min_frequency >= 1, "min_frequency must be at least 1; got ",
              training.min_frequency);
  std::set<std::string> seen;
  for (const std::string& special : training.special_tokens) {
    check_input(special.size() > 1 && valid_utf8_length(special) == special.size(),
                "a special token must be valid UTF-8 of more than one byte; got \"", special, '"');
    check_input(!spells_a_byte(special), "special token \"", special,
                "\" is how tokenizer.json spells a byte; choose another");
    check_input(seen.insert(special).second, "special token \"", special, "\" is named twice");
  }
}

BpeTokenizer train_bpe(const PieceCounts& pieces, const BpeTraining& training) {
  check_training(training);
  const auto fixed = static_cast<int64_t>(256 + training.special_tokens.size());
  auto merges = learn_merges(pieces, training.vocab_size - fixed, training.min_frequency);
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const auto& [left, right] : merges) {
    tokens.push_back(tokens[static_cast<size_t>(left)] + tokens[static_cast<size_t>(right)]);
  }
  std::vector<AddedToken> added;
  for (const std::string& content : training.special_tokens) {
    check_input(std::find(tokens.begin(), tokens.end(), content) == tokens.end(),
                "special token \"", content,
                "\" is a word of the text, learned as a token; choose another");
    added.push_back({static_cast<int32_t>(tokens.size() + added.size()), content});
  }
  return BpeTokenizer({Bpe(std::move(tokens), std::move(merges), false, "trained tokenizer"),
                       pieces.pre_tokenizer(), std::move(added), false, ""},
                      "trained tokenizer");
}

}  // namespace xtrain
