#pragma once
// How signals end a program that has something to save: a first one lets it finish its step and
// save, a second one ends it.

#include <atomic>

namespace xtrain {

// Set by the first signal after stop_on_signals().
const std::atomic<bool>& stop_requested();

// Losing the terminal or the reader of the output stops a program as a signal does.
void stop_on_signals();
// When nothing is left to save: signals do again what they do to any program.
void end_on_signals();

// A data file that is cut short while it is mapped ends the program with one line and exit code 1;
// a write beyond the limit of file sizes fails as others do. `program` must outlive the process.
void make_file_faults_errors(const char* program);

}  // namespace xtrain
