#pragma once
// What every program does with its arguments and with errors: one line on standard error, exit code
// 2 for bad input and 1 for failure.

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace xtrain {

// False when help was asked for, and has been printed. InputError when the arguments do not fit.
bool parse_arguments(CLI::App& app, int argc, char** argv);

// Prints "name: message" as one line on standard error. The line goes out at once, so that those of
// programs that share the stream do not mix.
void print_error(const char* name, const std::string& message);

// Runs the body and returns the program's exit code, the body's own when nothing is thrown.
int run_program(const char* name, const std::function<int()>& body);

}  // namespace xtrain
