#include "core/config_field.h"

#include <cmath>
#include <type_traits>

#include "core/error.h"

namespace xtrain {
namespace {

std::string join(const std::vector<std::string>& parts, const char* separator) {
  std::string all;
  for (const std::string& part : parts) all += (all.empty() ? "" : separator) + part;
  return all;
}

struct Expected {
  template <class T>
  std::string operator()(const ConfigField::Integer<T>& target) const {
    return text("an integer from ", target.range.low, " to ", target.range.high, or_null<T>());
  }
  template <class T>
  std::string operator()(const ConfigField::Real<T>& target) const {
    const RealRange& range = target.range;
    std::vector<std::string> bounds;
    if (range.low > -kInfinity) {
      bounds.push_back(text(range.low_allowed ? ">= " : "> ", range.low));
    }
    if (range.high < kInfinity) {
      bounds.push_back(text(range.high_allowed ? "<= " : "< ", range.high));
    }
    return text("a number ", join(bounds, " and "), or_null<T>());
  }
  std::string operator()(bool*) const { return "true or false"; }
  std::string operator()(std::string*) const { return "a string"; }
  std::string operator()(std::vector<std::string>*) const { return "an array of strings"; }
  std::string operator()(const ConfigField::Choice& choice) const {
    return "one of " + join(choice.names, ", ");
  }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  template <class T>
  static const char* or_null() {
    return std::is_arithmetic_v<T> ? "" : ", or null";
  }
};

// Empty if the value is in range, else the value.
struct OutOfRange {
  template <class T>
  std::string operator()(const ConfigField::Integer<T>& target) const {
    return shown_unless_in(*target.value, target.range);
  }
  template <class T>
  std::string operator()(const ConfigField::Real<T>& target) const {
    return shown_unless_in(*target.value, target.range);
  }
  template <class Target>
  std::string operator()(const Target&) const {
    return {};
  }

 private:
  template <class T, class Range>
  static std::string shown_unless_in(const T& value, const Range& range) {
    return in_range(value, range) ? std::string() : text(value);
  }
  template <class Range>
  static std::string shown_unless_in(uint64_t value, const Range& range) {
    return std::in_range<int64_t>(value) ? shown_unless_in(static_cast<int64_t>(value), range)
                                         : text(value);
  }
  template <class T, class Range>
  static std::string shown_unless_in(const std::optional<T>& value, const Range& range) {
    return value ? shown_unless_in(*value, range) : std::string();
  }
};

}  // namespace

ConfigField ConfigField::alias(std::string name) && {
  aliases.push_back(std::move(name));
  return std::move(*this);
}

ConfigField ConfigField::require() && {
  required = true;
  return std::move(*this);
}

ConfigField ConfigField::default_is(std::string text) && {
  default_text = std::move(text);
  return std::move(*this);
}

ConfigField ConfigField::expect(std::string text) && {
  expected_text = std::move(text);
  return std::move(*this);
}

ConfigField ConfigField::read_only() && {
  written = false;
  return std::move(*this);
}

std::string expected_value(const ConfigField& field) {
  return field.expected_text.empty() ? std::visit(Expected{}, field.target) : field.expected_text;
}

bool in_range(int64_t value, const IntRange& range) {
  return range.low <= value && value <= range.high;
}

bool in_range(double value, const RealRange& range) {
  if (!std::isfinite(value) || value < range.low || value > range.high) return false;
  return (range.low_allowed || value != range.low) && (range.high_allowed || value != range.high);
}

void check_ranges(const ConfigSection& section) {
  for (const ConfigField& field : section.fields) {
    const std::string wrong = std::visit(OutOfRange{}, field.target);
    check_input(wrong.empty(), section.name, ".", field.key, " must be ", expected_value(field),
                "; got ", wrong);
  }
}

}  // namespace xtrain
