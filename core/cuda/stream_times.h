#pragma once
// How long ways to the same result take on a stream, to choose among them.

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace xtrain {

// Microseconds of each of `ways`, of which run(i) puts number i into the stream: medians over
// rounds in which they take turns, so that a clock that changes hits all of them alike. A round
// before them does not count. The stream is waited for.
std::vector<double> times_in_turns(cudaStream_t stream, size_t ways,
                                   const std::function<void(size_t way)>& run);

}  // namespace xtrain
