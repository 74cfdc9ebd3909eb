#include "train/data/story_source.h"

#include <algorithm>

#include "core/error.h"
#include "core/random.h"

namespace xtrain {
namespace {

constexpr uint64_t kStorySite = 0x73746f7279;  // sets these draws apart from others of the seed
constexpr int64_t kMaxStories = int64_t{1} << 32;

int draw_alternative(const StoryGrammar::Rule& rule, const Philox4& words) {
  const double u = uniform_double(words.word[0], words.word[1]);
  const auto found = std::upper_bound(rule.cumulative.begin(), rule.cumulative.end() - 1, u);
  return static_cast<int>(found - rule.cumulative.begin());
}

}  // namespace

Story tell_story(const StoryGrammar& grammar, uint64_t seed, int64_t index) {
  const RandomStream stream = random_stream(seed, 0, kStorySite);
  Story story{"", 0};
  Telling telling(grammar);
  for (uint64_t choice = 0; const auto* open = telling.advance(story.text); ++choice) {
    const int drawn = draw_alternative(*open, stream.quad(static_cast<uint64_t>(index), choice));
    story.nats += open->alternatives[static_cast<size_t>(drawn)].nats;
    telling.take(drawn);
  }
  return story;
}

StorySource::StorySource(uint64_t seed, int64_t first, int64_t count)
    : seed_(seed), first_(first), count_(count) {
  check_input(count >= 1 && count <= kMaxStories, "stories: their number must lie in 1..",
              kMaxStories, "; got ", count);
  for (int64_t i = 0; i < count; ++i) {
    const Story story = tell_story(built_in_stories(), seed, first + i);
    text_ += story.text;
    nats_ += story.nats;
  }
}

void StorySource::read(int64_t offset, std::span<int32_t> out) const {
  check_range(*this, offset, static_cast<int64_t>(out.size()));
  std::transform(text_.begin() + offset, text_.begin() + offset + static_cast<int64_t>(out.size()),
                 out.begin(), [](char c) { return static_cast<unsigned char>(c); });
}

std::string StorySource::name() const {
  return text("stories ", first_, "..", first_ + count_ - 1, " of seed ", seed_);
}

std::optional<double> StorySource::entropy_floor() const {
  return nats_ / static_cast<double>(text_.size());
}

}  // namespace xtrain
