#pragma once
// Ranks of one host that exchange bytes through memory which all of them map.

#include <chrono>
#include <memory>

#include "distributed/exchange.h"

namespace xtrain {

// The ranks of `meeting`, all of which call this and tell each other over `meeting` where the
// memory is. Where one of them cannot map it, because it is on another host say, the result is
// `meeting` itself on every rank.
//
// A rank that has ended, or from which nothing comes within the time-out, is an error. The memory
// has no name in any folder: it ends with the last process that maps it, however that ends.
std::unique_ptr<Exchange> over_shared_memory(std::unique_ptr<Exchange> meeting,
                                             std::chrono::milliseconds timeout);

}  // namespace xtrain
