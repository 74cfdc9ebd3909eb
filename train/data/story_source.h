#pragma once
// The built-in stories as a token source: bytes of text, each story followed by an empty line.
//
// Story i of a seed is a function of (seed, i) alone. Its text tells exactly which choices were
// drawn (see story_grammar.h), so its information is the sum of -log(probability) over them, and
// the floor of a source is the information of its stories per byte. It is the loss, on this text,
// of a reader who knows the grammar and has read from the first byte on. A model sees windows that
// begin anywhere and has to guess what stood before, so it stays somewhat above: the floor is a
// lower bound that nothing beats by other than luck or having trained on the same stories, not a
// promise.

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "train/data/story_grammar.h"
#include "train/data/token_source.h"

namespace xtrain {

struct Story {
  std::string text;
  double nats;  // -log(probability of the text)
};

Story tell_story(const StoryGrammar& grammar, uint64_t seed, int64_t index);

// Stories first .. first + count - 1 of the seed, held in memory.
class StorySource : public TokenSource {
 public:
  StorySource(uint64_t seed, int64_t first, int64_t count);
  int64_t size() const override { return static_cast<int64_t>(text_.size()); }
  void read(int64_t offset, std::span<int32_t> out) const override;
  std::string name() const override;
  std::string reader() const override { return "built-in stories, bytes as tokens"; }
  std::optional<double> entropy_floor() const override;

 private:
  uint64_t seed_;
  int64_t first_, count_;
  std::string text_;
  double nats_ = 0;
};

}  // namespace xtrain
