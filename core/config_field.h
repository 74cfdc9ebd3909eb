#pragma once
// The keys of a config file, bound to the fields of plain structs.
//
// A struct's fields are described once, as a list of ConfigField. The same description reads JSON
// and command-line settings, writes the resolved config and prints the table of keys, so that none
// of them can fall behind another:
//
//   std::vector<ConfigField> fields(TrainConfig& c) {
//     return {config_field("learning_rate", c.learning_rate, above(0), "peak learning rate"),
//             config_field("max_steps", c.max_steps, from_to(1, kMaxCount), "optimizer steps")
//                 .alias("max_iters")};
//   }

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace xtrain {

struct IntRange {
  int64_t low, high;  // both allowed
};

inline IntRange from_to(int64_t low, int64_t high) {
  return {low, high};
}

// Numbers are finite whatever the range.
struct RealRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_allowed = true, high_allowed = true;

  RealRange below(double bound) const { return {low, bound, low_allowed, false}; }
  RealRange at_most(double bound) const { return {low, bound, low_allowed, true}; }
};

inline RealRange above(double bound) {
  RealRange range;
  range.low = bound;
  range.low_allowed = false;
  return range;
}
inline RealRange at_least(double bound) {
  RealRange range;
  range.low = bound;
  return range;
}

template <class E>
using EnumNames = std::vector<std::pair<E, std::string>>;

// One key of a section: its name, where its value goes, what is allowed. Keeps pointers into the
// described struct, so it must not outlive it.
struct ConfigField {
  template <class T>
  struct Integer {
    T* value;  // int64_t, uint64_t, or std::optional<int64_t> whose absence is JSON null
    IntRange range;
  };
  template <class T>
  struct Real {
    T* value;  // double or std::optional<double>
    RealRange range;
  };
  struct Choice {
    std::vector<std::string> names;
    std::function<size_t()> get;  // index into names
    std::function<void(size_t)> set;
  };
  using Target = std::variant<Integer<int64_t>, Integer<uint64_t>, Integer<std::optional<int64_t>>,
                              Real<double>, Real<std::optional<double>>, bool*, std::string*,
                              std::vector<std::string>*, Choice>;

  std::string key;
  Target target;
  std::string help;  // one line, with the unit
  std::vector<std::string> aliases = {};
  std::string default_text = {};   // shown in tables instead of the struct's value
  std::string expected_text = {};  // said in errors and tables instead of type and range
  bool required = false;
  bool written = true;

  // Another name under which the key is read. A name shared by several fields sets all of them;
  // a field's own key wins over it.
  ConfigField alias(std::string name) &&;
  // Reading fails unless some source gives the key.
  ConfigField require() &&;
  // For a default that is computed from other keys: how.
  ConfigField default_is(std::string text) &&;
  // For a range that depends on other keys, checked elsewhere: what the value must be.
  ConfigField expect(std::string text) &&;
  // Understood, but expressed by another key in the resolved config.
  ConfigField read_only() &&;
};

inline ConfigField config_field(std::string key, int64_t& value, IntRange range, std::string help) {
  return {std::move(key), ConfigField::Integer<int64_t>{&value, range}, std::move(help)};
}
inline ConfigField config_field(std::string key, uint64_t& value, IntRange range,
                                std::string help) {
  return {std::move(key), ConfigField::Integer<uint64_t>{&value, range}, std::move(help)};
}
inline ConfigField config_field(std::string key, std::optional<int64_t>& value, IntRange range,
                                std::string help) {
  return {std::move(key), ConfigField::Integer<std::optional<int64_t>>{&value, range},
          std::move(help)};
}
inline ConfigField config_field(std::string key, double& value, RealRange range, std::string help) {
  return {std::move(key), ConfigField::Real<double>{&value, range}, std::move(help)};
}
inline ConfigField config_field(std::string key, std::optional<double>& value, RealRange range,
                                std::string help) {
  return {std::move(key), ConfigField::Real<std::optional<double>>{&value, range}, std::move(help)};
}
inline ConfigField config_field(std::string key, bool& value, std::string help) {
  return {std::move(key), &value, std::move(help)};
}
inline ConfigField config_field(std::string key, std::string& value, std::string help) {
  return {std::move(key), &value, std::move(help)};
}
inline ConfigField config_field(std::string key, std::vector<std::string>& value,
                                std::string help) {
  return {std::move(key), &value, std::move(help)};
}
template <class E>
ConfigField config_field(std::string key, E& value, const EnumNames<E>& names, std::string help) {
  ConfigField::Choice choice;
  std::vector<E> values;
  for (const auto& [each, name] : names) {
    values.push_back(each);
    choice.names.push_back(name);
  }
  choice.get = [&value, values] {
    size_t i = 0;
    while (i + 1 < values.size() && values[i] != value) ++i;
    return i;
  };
  choice.set = [&value, values](size_t i) { value = values[i]; };
  return {std::move(key), std::move(choice), std::move(help)};
}

struct ConfigSection {
  std::string name;
  std::vector<ConfigField> fields;
};

// What a field accepts: "an integer from 1 to 8", "one of f32, bf16", "a number > 0".
std::string expected_value(const ConfigField& field);

bool in_range(int64_t value, const IntRange& range);
bool in_range(double value, const RealRange& range);  // false for infinity and NaN

// Throws InputError naming the first key whose present value is out of its range, for structs that
// were filled in by a program.
void check_ranges(const ConfigSection& section);

}  // namespace xtrain
