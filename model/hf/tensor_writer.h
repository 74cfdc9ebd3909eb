#pragma once
// Writes tensors as model.safetensors, or as shards with model.safetensors.index.json.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "model/hf/safetensors.h"

namespace xtrain {

// A tensor whose values are made when they are written. `write` hands its bytes to `put`, in order,
// in pieces of any size.
struct TensorToWrite {
  using Put = std::function<void(std::span<const std::byte>)>;
  SafetensorsInfo info;
  std::function<void(const Put& put)> write;
};

int64_t bytes_of(const SafetensorsInfo& tensor);  // of its values

// Fills shards in the order given until the next tensor would make them exceed max_shard_bytes; a
// larger tensor has a shard to itself. Within a file tensors are sorted by name, those of wider
// types first, so that all are aligned. One file is model.safetensors; of several, shard i of n is
// model-0000i-of-0000n.safetensors. The same tensors give the same bytes. Throws Error naming the
// file.
void write_tensor_files(const std::string& folder, std::vector<TensorToWrite> tensors,
                        int64_t max_shard_bytes);

}  // namespace xtrain
