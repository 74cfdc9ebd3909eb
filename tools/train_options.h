#pragma once
// The command line of the training programs, one definition for all of them.

#include <deque>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "train/run_config.h"

namespace CLI {
class App;
}

namespace xtrain {

// Where programs look for configs that the working folder does not hold: those installed beside the
// program, then those of the source tree it was built in.
std::vector<std::string> config_folders(const std::string& program);

// The table of all keys as docs/config.md holds it.
std::string config_keys_page();

class TrainOptions {
 public:
  // Adds the options to the app; values are valid after the app has parsed.
  TrainOptions(CLI::App& app, std::string program);
  TrainOptions(const TrainOptions&) = delete;
  TrainOptions& operator=(const TrainOptions&) = delete;

  // Defaults, then the config file, then flags. InputError naming what is wrong.
  RunConfig resolve() const;
  // Prints the table of keys or the resolved config where that is all the program was asked for;
  // false where it is to train.
  bool print_page(std::ostream& out) const;

 private:
  // A flag that stands for a key of the config.
  struct KeyFlag {
    std::string flag, section, key;
    std::optional<std::string> value;
  };
  void add_key(CLI::App& app, std::string flag, std::string section, std::string key,
               const std::string& help);

  std::string program_, config_;
  std::deque<KeyFlag> key_flags_;  // the app keeps references
  std::vector<std::string> data_, settings_;
  int flash_ = 0;  // 1: --flash, -1: --no-flash
  bool print_config_ = false;
  bool print_keys_ = false;
};

}  // namespace xtrain
