#pragma once
// The GPU context of tests tagged [cuda].

#include "core/context.h"

namespace xtrain {

// On GPU 0. The environment variable XT_TEST_CUDA says how, for sanitizers: "one_allocation_each"
// gives every tensor a block of its own, "wait" waits behind each launch; both may be named.
const Context& test_cuda_context();

}  // namespace xtrain
