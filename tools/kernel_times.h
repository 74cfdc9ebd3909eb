#pragma once
// Which kernels a GPU has run and for how long, as CUPTI notes it.

#include <cstdint>
#include <string>
#include <vector>

namespace xtrain {

struct KernelTime {
  std::string name;  // demangled; "copy" and "fill" for what is no kernel
  int64_t runs = 0;
  double seconds = 0.0;  // of all runs
};

// Whether this build has CUPTI.
bool can_note_kernels();

// From here on kernels are noted, those of recorded work only if it is recorded later. What is
// noted slows the GPU down a little. Error where this build has no CUPTI, and where that refuses,
// as under another profiler.
void note_kernels();

// Those that have ended since the last call. The GPU must have been waited for.
std::vector<KernelTime> noted_kernels();

}  // namespace xtrain
