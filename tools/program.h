#pragma once
// What every program does with errors: one line on standard error, exit code 2 for bad input and 1
// for failure.

#include <exception>
#include <functional>
#include <iostream>

#include "core/error.h"

namespace xtrain {

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
