#pragma once
// Ranks that are processes with one GPU each, over NCCL.

#include <memory>

#include "distributed/backend.h"
#include "distributed/communicator.h"

namespace xtrain {

// Connects the context's GPU with those of all other ranks; all ranks call this. The store is not
// used afterwards. Errors when that fails. Only in builds with NCCL: see backend.h.
//
// Operations run on a stream of their own, which forks from the context's at each call and joins it
// at finish(). A thread watches over them: when NCCL reports an error, or an operation is not done
// in time, it ends them all, so that neither the host nor the GPU waits for ever.
std::unique_ptr<Communicator> nccl_communicator(const Context& ctx, const ConnectOptions& options,
                                                KeyValueStore& store);

}  // namespace xtrain
