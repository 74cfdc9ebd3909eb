#pragma once
// What carries the bytes of collective operations between processes.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "distributed/communicator.h"
#include "distributed/key_value_store.h"

namespace xtrain {

enum class Backend : uint8_t { nccl, gloo };

std::string_view name_of(Backend backend);
bool is_built(Backend backend);

// NCCL for a GPU, Gloo for a CPU. InputError when this build lacks it.
Backend backend_for(const Context& ctx);

struct ConnectOptions {
  int rank = 0, size = 1;
  std::string address = "127.0.0.1";  // of this host as the others reach it: a name or an IP
  // A rank that is not heard of for so long is lost: at the start and in each operation.
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};
  // gloo: ranks that are all on one host exchange bytes through memory, and not over TCP.
  bool share_memory = true;
  // nccl: the fewest and most blocks, of which each keeps a multiprocessor of the GPU, that work on
  // a large operation; without them NCCL decides.
  std::optional<int> fewest_blocks = std::nullopt, most_blocks = std::nullopt;
};

// Connects this rank with all others, who find each other through the store; all ranks call this.
// InputError when the backend is not built or is not that of the context's device; Error when the
// connection fails.
std::unique_ptr<Communicator> connect(Backend backend, const Context& ctx,
                                      const ConnectOptions& options, KeyValueStore& store);

}  // namespace xtrain
