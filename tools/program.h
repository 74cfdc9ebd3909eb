#pragma once
// What every program does with its arguments and with errors: one line on standard error, exit code
// 2 for bad input and 1 for failure.

#include <CLI/CLI.hpp>
#include <exception>
#include <functional>
#include <iostream>

#include "core/error.h"

namespace xtrain {

// False when help was asked for, and has been printed.
inline bool parse_arguments(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::Success& help) {
    app.exit(help);
    return false;
  } catch (const CLI::ParseError& error) {
    reject_input(error.what(), "; see --help");
  }
}

inline int run_program(const char* name, const std::function<int()>& body) {
  try {
    return body();
  } catch (const InputError& error) {
    std::cerr << name << ": " << error.what() << std::endl;
    return 2;
  } catch (const std::exception& error) {
    std::cerr << name << ": " << error.what() << std::endl;
    return 1;
  }
}

}  // namespace xtrain
