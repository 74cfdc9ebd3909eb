#include "train/data/story_grammar.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "support/catch.h"
#include "train/data/story_source.h"

namespace xtrain {
namespace {

// Where the text can go on from an open choice: for each alternative, the text up to the next
// choice.
std::vector<std::string> ways_on(const Telling& telling, const StoryGrammar::Rule& open) {
  std::vector<std::string> ways;
  for (size_t i = 0; i < open.alternatives.size(); ++i) {
    Telling ahead = telling;
    ways.emplace_back();
    ahead.take(static_cast<int>(i));
    ahead.advance(ways.back());
  }
  return ways;
}

// Whether no string begins with another. In sorted order one that does stands right after it, or
// after others that do.
bool is_prefix_free(std::vector<std::string> strings) {
  std::sort(strings.begin(), strings.end());
  for (size_t i = 1; i < strings.size(); ++i) {
    if (strings[i].starts_with(strings[i - 1])) return false;
  }
  return true;
}

struct Reading {
  bool is_story = true;   // the text is one story of the grammar
  bool is_unique = true;  // and could not have been told by other choices
  double nats = 0;
  std::set<std::string> rules;  // that were open on the way
};

// Recovers the choices behind a text from left to right.
Reading read_story(const StoryGrammar& grammar, std::string_view text) {
  Reading reading;
  Telling telling(grammar);
  std::string told;
  while (const auto* open = telling.advance(told)) {
    reading.rules.insert(open->name);
    const std::vector<std::string> ways = ways_on(telling, *open);
    reading.is_unique = reading.is_unique && is_prefix_free(ways);
    const std::string_view rest = text.substr(std::min(told.size(), text.size()));
    const auto way = std::find_if(ways.begin(), ways.end(),
                                  [&](const std::string& w) { return rest.starts_with(w); });
    reading.is_story = text.starts_with(told) && way != ways.end();
    if (!reading.is_story) return reading;
    const auto chosen = static_cast<size_t>(way - ways.begin());
    reading.nats += open->alternatives[chosen].nats;
    telling.take(static_cast<int>(chosen));
  }
  reading.is_story = text == told;
  return reading;
}

std::string told(const StoryGrammar& grammar) {
  std::string text;
  Telling telling(grammar);
  while (telling.advance(text)) telling.take(0);
  return text;
}

TEST_CASE("story grammar: memory, attributes, articles, capitals and line breaks") {
  const StoryGrammar grammar(R"(
# a comment
story: A/an [look] [x:animal] named [who:name] met a/an [y:x.enemy]. \n [Mood] was <who>, the <x>.
  <Y> gave <who.their> friend <x.food>. <who.They> ate.
animal {food=a nut; enemy=bird}: ant {enemy=bug} | fox
bug: old bee | wasp
bird: owl | hen
name {they=she}: Ann {their=her}
look: angry | red
mood: happy | sad
)");
  CHECK(told(grammar) ==
        "An angry ant named Ann met an old bee.\nHappy was Ann, the ant. Old bee gave her friend a "
        "nut. "
        "She ate.");
}

TEST_CASE("story grammar: familiar alternatives come first, others are equally probable") {
  const StoryGrammar grammar("story: [a] [b]\na ~: x | y | z\nb: x | y | z | w\n");
  const auto& a = grammar.rule(grammar.rule_index("a"));
  const double total = 1 / 8.0 + 1 / 9.0 + 1 / 10.0;
  for (int i = 0; i < 3; ++i) {
    const double p = 1 / (8.0 + i) / total;
    CHECK(std::abs(a.alternatives[size_t(i)].nats + std::log(p)) < 1e-14);
  }
  for (const auto& alternative : grammar.rule(grammar.rule_index("b")).alternatives) {
    CHECK(std::abs(alternative.nats - std::log(4.0)) < 1e-14);
  }
}

TEST_CASE("story grammar: the rules of another rule can be taken over, with their attributes") {
  const StoryGrammar grammar(
      "wet {way=swam}: frog | duck\nall: @wet | hen {way=ran}\n"
      "story: The [x:all] <x.way>.\n");
  CHECK(grammar.rule(grammar.rule_index("all")).alternatives.size() == 3);
  CHECK(told(grammar) == "The frog swam.");
}

TEST_CASE("story grammar: faults are errors that quote the place") {
  CHECK_THROWS_WITH(StoryGrammar("story: [hero]\n"), "story grammar: there is no rule \"hero\"");
  CHECK_THROWS_WITH(StoryGrammar("story: a\nstory: b\n"),
                    "story grammar: there are two rules \"story\"");
  CHECK_THROWS_WITH(StoryGrammar("story: a | | b\n"),
                    "story grammar: an alternative must not be empty");
  CHECK_THROWS_WITH(StoryGrammar("story: the [hero\n"),
                    "story grammar: a bracket is not closed in: [hero");
  CHECK_THROWS_AS(StoryGrammar("  | a\n"), Error);
  CHECK_THROWS_WITH(told(StoryGrammar("story: <x>\n")),
                    "story grammar: <x> is told before it is drawn");
  CHECK_THROWS_WITH(told(StoryGrammar("story: [x:a] <x.food>\na: ox\n")),
                    "story grammar: <x> is \"ox\", which has no attribute \"food\"");
}

TEST_CASE("story grammar: the reader notices a grammar that is not uniquely readable") {
  const StoryGrammar sound("story: [a], [b].\na: red | redder\nb: yes | no\n");
  CHECK(read_story(sound, "redder, no.").is_unique);
  CHECK(read_story(sound, "redder, no.").is_story);
  CHECK_FALSE(read_story(sound, "redder, maybe.").is_story);
  CHECK_FALSE(
      read_story(StoryGrammar("story: [a][b].\na: re | red\nb: d | dd\n"), "red.").is_unique);
  CHECK_FALSE(read_story(StoryGrammar("story: [a].\na: x | y | x\n"), "y.").is_unique);
}

TEST_CASE("stories: every choice can be read back from the text, so the information is exact") {
  const StoryGrammar& grammar = built_in_stories();
  std::set<std::string> seen, texts;
  const int count = 500;
  for (int i = 0; i < count; ++i) {
    const Story story = tell_story(grammar, 1, i);
    const Reading reading = read_story(grammar, story.text);
    INFO(story.text);
    REQUIRE(reading.is_story);
    REQUIRE(reading.is_unique);
    REQUIRE(reading.nats == story.nats);
    CHECK_FALSE(read_story(grammar, story.text.substr(0, story.text.size() - 1)).is_story);
    seen.insert(reading.rules.begin(), reading.rules.end());
    texts.insert(story.text);
  }
  CHECK(texts.size() == count);
  // Every rule with a choice was open somewhere, but those that only lend their alternatives.
  for (int rule = 0; rule < grammar.rules(); ++rule) {
    const std::string& name = grammar.rule(rule).name;
    INFO(name);
    CHECK((seen.contains(name) || grammar.rule(rule).alternatives.size() == 1 ||
           name.ends_with("_trait") || name.ends_with("_spot")));
  }
}

}  // namespace
}  // namespace xtrain
