#include "train/data/story_source.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "support/catch.h"

namespace xtrain {
namespace {

std::vector<std::string> stories(int count) {
  std::vector<std::string> all;
  for (int i = 0; i < count; ++i) all.push_back(tell_story(built_in_stories(), 5, i).text);
  return all;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// What stands between the first `before` and the next `after`; empty if there is no such place.
std::string between(const std::string& text, const std::string& before, const std::string& after) {
  const size_t found = text.find(before);
  if (found == std::string::npos) return "";
  const size_t begin = found + before.size(), end = text.find(after, begin);
  return end == std::string::npos ? "" : text.substr(begin, end - begin);
}

// The words that a rule can tell.
std::set<std::string> words_of(const std::string& rule) {
  std::set<std::string> words;
  const StoryGrammar& grammar = built_in_stories();
  for (const auto& alternative : grammar.rule(grammar.rule_index(rule)).alternatives) {
    words.insert(alternative.pieces.front().text);
  }
  return words;
}

TEST_CASE("stories: a story is a function of seed and index, and ends with an empty line") {
  const StorySource source(3, 10, 5);
  std::string joined;
  double nats = 0;
  for (int i = 10; i < 15; ++i) {
    const Story story = tell_story(built_in_stories(), 3, i);
    CHECK(story.text.ends_with(".\n\n"));
    CHECK(story.text.find("\n\n") == story.text.size() - 2);
    joined += story.text;
    nats += story.nats;
  }
  std::vector<int32_t> ids(joined.size());
  REQUIRE(source.size() == static_cast<int64_t>(joined.size()));
  source.read(0, ids);
  CHECK(std::string(ids.begin(), ids.end()) == joined);
  CHECK(*source.entropy_floor() == nats / static_cast<double>(joined.size()));
  CHECK(tell_story(built_in_stories(), 4, 10).text != tell_story(built_in_stories(), 3, 10).text);
}

TEST_CASE("stories: a seed gives the same story on every machine") {
  const StoryGrammar grammar(
      "story: [a][a][a][a][a][a][a][a][a][a][a][a]\na: 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7\n");
  CHECK(tell_story(grammar, 1, 0).text == "225070704301");
  CHECK(tell_story(grammar, 1, 1).text == "237176047624");
  CHECK(tell_story(grammar, 2, 0).text == "366061710046");
}

TEST_CASE("stories: the reported information equals the entropy of the texts that come") {
  const StoryGrammar grammar(
      "story: [n] [x:kind], [x.end].\nn ~: one | two | three | four\n"
      "kind: cat {end=c} | dog {end=d}\nc: purrs | sleeps | eats\nd: barks | runs\n");
  const int count = 100000;
  std::map<std::string, int> times;
  double reported = 0;
  for (int i = 0; i < count; ++i) {
    const Story story = tell_story(grammar, 11, i);
    times[story.text] += 1;
    reported += story.nats / count;
  }
  double empirical = 0, expected = std::log(2.0) + (std::log(3.0) + std::log(2.0)) / 2;
  for (const auto& [text, n] : times) empirical -= double(n) / count * std::log(double(n) / count);
  double total = 0;
  for (int i = 0; i < 4; ++i) total += 1 / (8.0 + i);
  for (int i = 0; i < 4; ++i) expected -= 1 / (8.0 + i) / total * std::log(1 / (8.0 + i) / total);
  CHECK(times.size() == 20);
  // The mean information varies by less than 0.25 nats / sqrt(count) = 8e-4 from sample to sample;
  // an entropy from counts is biased by (20 - 1) / (2 * count) = 1e-4.
  CHECK(std::abs(reported - expected) < 4e-3);
  CHECK(std::abs(empirical - expected) < 4e-3);
}

TEST_CASE("stories: the floor of one sample is that of another within the sampling error") {
  const int count = 4000;
  double sum = 0, squares = 0, bytes = 0;
  for (int i = 0; i < count; ++i) {
    const Story story = tell_story(built_in_stories(), 21, i);
    sum += story.nats;
    squares += story.nats * story.nats;
    bytes += static_cast<double>(story.text.size());
  }
  const double mean = sum / count, deviation = std::sqrt(squares / count - mean * mean);
  // Longer stories tell more, so the error of the ratio is below that of its numerator.
  const double error = deviation / std::sqrt(count) / (bytes / count);
  const StorySource other(22, 0, count);
  CHECK(std::abs(*other.entropy_floor() - sum / bytes) < 5 * std::sqrt(2.0) * error);
  CHECK(error < 0.01 * sum / bytes);
}

TEST_CASE("stories: choices come as often as their probabilities say") {
  const std::vector<std::string> all = stories(8000);
  const double n = static_cast<double>(all.size());
  int opening = 0, girls = 0, first = 0, last = 0;
  for (const std::string& story : all) {
    opening += story.starts_with("Long ago, when ");
    girls += contains(story, " little girl named ");
    first += contains(story, " little girl named Lily.");
    last += contains(story, " little girl named Pearl.");
  }
  const auto agrees = [&](int count, double p) {
    return std::abs(count - n * p) < 5 * std::sqrt(n * p * (1 - p));
  };
  const StoryGrammar& grammar = built_in_stories();
  const auto& names = grammar.rule(grammar.rule_index("girl")).alternatives;
  CHECK(agrees(opening, 1.0 / 6));
  CHECK(agrees(girls, 1.0 / 3));
  CHECK(agrees(first, std::exp(-names.front().nats) / 3));
  CHECK(agrees(last, std::exp(-names.back().nats) / 3));
}

TEST_CASE("stories: there are thousands of words, and only ASCII") {
  std::set<std::string> words;
  std::string word;
  for (const std::string& story : stories(8000)) {
    REQUIRE(std::all_of(story.begin(), story.end(),
                        [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
    for (const char c : story) {
      if (std::isalpha(static_cast<unsigned char>(c))) {
        word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      } else if (!word.empty()) {
        words.insert(word);
        word.clear();
      }
    }
  }
  CHECK(words.size() >= 2000);
}

TEST_CASE("stories: no notation is left over and articles fit") {
  const std::string vowels = "aeiouAEIOU";
  for (const std::string& story : stories(2000)) {
    INFO(story);
    REQUIRE(story.find_first_of("[]<>{}|@/=") == std::string::npos);
    for (const char* wrong : {"  ", " \n", "\n ", " ."}) REQUIRE_FALSE(contains(story, wrong));
    for (size_t i = 0; i + 4 < story.size(); ++i) {
      if (story.compare(i, 3, " a ") == 0) REQUIRE(vowels.find(story[i + 3]) == std::string::npos);
      if (story.compare(i, 4, " an ") == 0) REQUIRE(vowels.find(story[i + 4]) != std::string::npos);
    }
  }
}

TEST_CASE("stories: what was lost is found, by one who can get there") {
  int found = 0;
  for (const std::string& story : stories(2000)) {
    if (!contains(story, " was so busy ")) continue;
    INFO(story);
    const std::string loss = between(story, " was so busy ", ".\n");
    const std::string toy = between(loss, " that the ", " fell ");
    const std::string spot = loss.substr(loss.find(" fell ") + 6);
    const std::string after = story.substr(story.find(".\n", story.find(" was so busy ")));
    REQUIRE_FALSE(toy.empty());
    CHECK(contains(story.substr(0, story.find(" was so busy ")), " " + toy));
    CHECK((contains(after, "back with the " + toy) ||
           contains(after, "had the " + toy + " again") ||
           contains(after, "heard about the " + toy)));
    const bool is_high = words_of("high_spot").contains(spot);
    const bool is_deep = words_of("deep_spot").contains(spot);
    const bool is_wet = words_of("wet_spot").contains(spot);
    CHECK((is_high || is_deep || is_wet || words_of("narrow_spot").contains(spot)));
    const std::string done = is_wet    ? "dived to the bottom"
                             : is_high ? "flew up with a flap of wings"
                             : is_deep ? "dug and dug and dug"
                                       : "crept inside";
    const std::string who = is_wet ? "swimmer" : is_high ? "flier" : is_deep ? "digger" : "tiny";
    CHECK(contains(after, done));
    int able = 0;
    for (const std::string& animal : words_of(who)) able += contains(after, " " + animal);
    CHECK(able > 0);
    ++found;
  }
  CHECK(found > 100);
}

TEST_CASE("stories: what one does has consequences") {
  int mean = 0, kind = 0, marked = 0, unmarked = 0, dreams = 0;
  for (const std::string& story : stories(4000)) {
    INFO(story);
    const bool is_repaid =
        contains(story, "turn deserves another") || contains(story, "friends for ever");
    const bool is_sorry = contains(story, "\"I am sorry,\" said") || contains(story, "was ashamed");
    if (contains(story, "\"No, it is all mine,\"")) {
      ++mean;
      CHECK((is_sorry && !is_repaid));
    }
    if (contains(story, "the biggest piece. ")) {
      ++kind;
      CHECK((is_repaid && !is_sorry));
    }
    if (const std::string marker = between(story, " dropped ", " behind h"); !marker.empty()) {
      ++marked;
      CHECK(contains(story, "only had to look for the " + marker + "."));
      CHECK_FALSE(contains(story, "Which way is home?"));
    }
    unmarked += contains(story, "Which way is home?");
    if (const std::string counted = between(story, ", two ", ", three "); !counted.empty()) {
      ++dreams;
      CHECK(contains(story, ", three " + counted + "..."));
      CHECK(contains(story, counted == "whales" ? "of the deep blue sea" : " of "));
      CHECK(contains(story, "the deep blue sea") == (counted == "whales"));
    }
  }
  CHECK(mean > 50);
  CHECK(kind > 50);
  CHECK(marked > 50);
  CHECK(unmarked > 50);
  CHECK(dreams > 100);
}

}  // namespace
}  // namespace xtrain
