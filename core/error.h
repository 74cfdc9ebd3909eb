#pragma once
// Errors of the library. Every message says what must hold, what came and, where it helps, what to
// do, in one line. Libraries throw; only the programs print.

#include <sstream>
#include <stdexcept>
#include <string>

namespace xtrain {

// A failure: of the machine, a file, or the caller's use of the library. Programs exit with 1.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Input that cannot be accepted: a config value, a data file, an argument. Programs exit with 2.
class InputError : public Error {
 public:
  using Error::Error;
};

// The parts written one after the other, as by operator<<.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw Error(text(parts...));
}

template <class... Parts>
[[noreturn]] void reject_input(const Parts&... parts) {
  throw InputError(text(parts...));
}

// Throws Error with the given message unless `holds`.
template <class... Parts>
void check(bool holds, const Parts&... parts) {
  if (!holds) fail(parts...);
}

// Throws InputError with the given message unless `holds`.
template <class... Parts>
void check_input(bool holds, const Parts&... parts) {
  if (!holds) reject_input(parts...);
}

}  // namespace xtrain
