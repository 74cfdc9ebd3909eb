#include "support/catch.h"
#include "tools/program_runs.h"
#include "train/data/story_source.h"

using namespace xtrain;

TEST_CASE("stories prints the stories that training reads", "[tools]") {
  const Workplace place;
  const Finished run = place.run("stories", "--seed 3 --first 2 --count 4");
  CHECK(run.code == 0);
  CHECK(run.err == "");
  std::string expected;
  for (int64_t i = 2; i < 6; ++i) expected += tell_story(built_in_stories(), 3, i).text;
  CHECK(run.out == expected);
  CHECK(place.run("stories", "--count 0").out == "");
}

TEST_CASE("stories can be told apart by a line", "[tools]") {
  const Workplace place;
  const Finished run = place.run("stories", "--count 2 --separator '<|endoftext|>'");
  CHECK(run.out == tell_story(built_in_stories(), 1, 0).text + "<|endoftext|>\n" +
                       tell_story(built_in_stories(), 1, 1).text);
}

TEST_CASE("stories refuses negative numbers and output that nobody can keep", "[tools]") {
  const Workplace place;
  CHECK(place.run("stories", "--count -1").code == 2);
  CHECK(place.run("stories", "--first -1").code == 2);
  CHECK(place.shell("\"${train%train}stories\" --count 5 >/dev/full").code == 1);
}
