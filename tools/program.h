#pragma once
// What every program does with its arguments and with errors: one line on standard error, exit code
// 2 for bad input and 1 for failure.

#include <functional>

namespace CLI {
class App;
}

namespace xtrain {

// False when help was asked for, and has been printed. InputError when the arguments do not fit.
bool parse_arguments(CLI::App& app, int argc, char** argv);

// Runs the body and returns the program's exit code, the body's own when nothing is thrown.
int run_program(const char* name, const std::function<int()>& body);

}  // namespace xtrain
