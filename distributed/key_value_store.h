#pragma once
// A small store that all ranks of a run share, through which they find each other.

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace xtrain {

using Bytes = std::vector<std::byte>;

class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;

  // The key's value for all ranks from now on. Error when it cannot be stored.
  virtual void set(const std::string& key, std::span<const std::byte> value) = 0;
  // Waits until some rank has set the key. Error naming the key when none does in time.
  virtual Bytes get(const std::string& key, std::chrono::milliseconds timeout) = 0;
};

}  // namespace xtrain
