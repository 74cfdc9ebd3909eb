#pragma once
// Ranks that are processes on one or more hosts. They find each other by Gloo and exchange bytes
// over its TCP connections or, where all are on one host, through shared memory.

#include <memory>

#include "distributed/backend.h"
#include "distributed/communicator.h"
#include "distributed/key_value_store.h"

namespace xtrain {

// Connects this rank with all others, whose addresses come through the store; all ranks call this.
// The store is not used afterwards. Errors when that fails. Only in builds with Gloo: see
// backend.h.
std::unique_ptr<Communicator> gloo_communicator(const ConnectOptions& options,
                                                KeyValueStore& store);

}  // namespace xtrain
