#pragma once
// What is said when input is refused.

#include <string>

#include "core/error.h"

namespace xtrain {

// The message of the InputError that `call` throws; "accepted" if it throws nothing. Any other
// exception passes through and fails the test.
template <class Call>
std::string rejection(Call&& call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace xtrain
