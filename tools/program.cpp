#include "tools/program.h"

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <exception>
#include <iostream>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace xtrain {
namespace {

// A program may be started with a standard stream closed. The next file it opens would then take
// the stream's number, and messages would be written into that file.
void open_closed_streams() {
  for (int stream = 0; stream <= 2; ++stream) {
    if (fcntl(stream, F_GETFD) < 0) (void)!open("/dev/null", O_RDWR);  // takes the lowest number
  }
}

template <class T>
bool is_number(std::string_view value) {
  if (value.starts_with('+')) value.remove_prefix(1);
  T number;
  const char* const end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  return error == std::errc() && stop == end && number == number;  // "nan" is not one
}

// CLI11 turns numbers that are out of range into others, and nothing into 0. What is not a number
// (nan) lies in all of its ranges.
void check_numbers(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    const bool plain = option->get_type_size_max() > 0 && type.find("SIZE") == std::string::npos;
    for (const std::string& value : plain ? option->results() : std::vector<std::string>()) {
      const bool fits = type.starts_with("INT")     ? is_number<int64_t>(value)
                        : type.starts_with("UINT")  ? is_number<uint64_t>(value)
                        : type.starts_with("FLOAT") ? is_number<double>(value)
                                                    : true;
      check_input(fits, option->get_name(), " must be a number",
                  type.starts_with("UINT") ? " from 0 to 2^64 - 1" : "", "; got \"", value, "\"");
    }
  }
  for (const CLI::App* command : app.get_subcommands({})) check_numbers(*command);
}

}  // namespace

// Messages quote what the user gave, which may hold line breaks and terminal codes.
void print_error(const char* name, const std::string& message) {
  std::string line = std::string(name) + ": ";
  for (const char c : message) {
    const bool control = (c >= 0 && c < ' ') || c == 127;
    line += c == '\n' ? "\\n" : control ? "?" : std::string(1, c);
  }
  line += '\n';
  (void)!write(STDERR_FILENO, line.data(), line.size());
}

bool parse_arguments(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    check_numbers(app);
    return true;
  } catch (const CLI::Success& help) {
    app.exit(help);
    return false;
  } catch (const CLI::ParseError& error) {
    reject_input(error.what(), "; see --help");
  } catch (const std::out_of_range&) {  // of CLI11's conversion of a flag's value
    reject_input(
        "the value of a flag must be true or false; one is a number too large; see --help");
  }
}

int run_program(const char* name, const std::function<int()>& body) {
  open_closed_streams();
  try {
    const int code = body();
    check(!std::cout.flush().fail(), "standard output cannot be written; some of it is lost");
    return code;
  } catch (const InputError& error) {
    print_error(name, error.what());
    return 2;
  } catch (const std::bad_alloc&) {
    print_error(name, "out of memory; use a smaller model, batch, sequence or number of samples");
    return 1;
  } catch (const std::exception& error) {
    print_error(name, error.what());
    return 1;
  }
}

}  // namespace xtrain
