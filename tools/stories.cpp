// Prints the built-in stories, as text to train on.

#include <CLI/CLI.hpp>
#include <iostream>

#include "core/error.h"
#include "tools/program.h"
#include "train/data/story_source.h"

namespace xtrain {
namespace {

int stories(int argc, char** argv) {
  CLI::App app("Prints the built-in children's stories, each followed by an empty line.",
               "stories");
  int64_t count = 1, first = 0;
  uint64_t seed = 1;
  std::string separator;
  app.add_option("--count", count, "number of stories")->capture_default_str();
  app.add_option("--first", first, "number of the first")->capture_default_str();
  app.add_option("--seed", seed, "the same seed tells the same stories")->capture_default_str();
  app.add_option("--separator", separator, "a line printed between two stories");
  if (!parse_arguments(app, argc, argv)) return 0;
  check_input(count >= 0 && first >= 0, "--count and --first must be at least 0; got ", count,
              " and ", first);
  for (int64_t i = 0; i < count; ++i) {
    if (i > 0 && !separator.empty()) std::cout << separator << '\n';
    std::cout << tell_story(built_in_stories(), seed, first + i).text;
    check(std::cout.good(), "standard output cannot be written");
  }
  return 0;
}

}  // namespace
}  // namespace xtrain

int main(int argc, char** argv) {
  return xtrain::run_program("stories", [&] { return xtrain::stories(argc, argv); });
}
