#pragma once
// Which cores threads may run on.

#include <vector>

namespace xtrain {

// The affinity mask of the calling thread.
std::vector<int> allowed_cores();

// Narrows it, and that of every thread started afterwards. A refusal costs only speed.
void stay_on(const std::vector<int>& cores);

}  // namespace xtrain
