#include "model/hf/tensor_writer.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "core/atomic_file.h"
#include "core/error.h"
#include "model/hf/tensor_files.h"

namespace xtrain {
namespace {

namespace fs = std::filesystem;
using Shard = std::span<TensorToWrite>;

std::vector<Shard> cut_into_shards(std::vector<TensorToWrite>& tensors, int64_t max_bytes) {
  std::vector<Shard> shards;
  int64_t filled = 0;
  size_t begin = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t bytes = bytes_of(tensors[i].info);
    if (i > begin && filled + bytes > max_bytes) {
      shards.push_back(Shard(tensors).subspan(begin, i - begin));
      begin = i;
      filled = 0;
    }
    filled += bytes;
  }
  shards.push_back(Shard(tensors).subspan(begin));
  return shards;
}

std::string shard_name(size_t index, size_t count) {
  if (count == 1) return kTensorFile;
  char name[64];
  std::snprintf(name, sizeof(name), "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name;
}

void write_shard(const std::string& path, Shard shard) {
  std::sort(shard.begin(), shard.end(), [](const TensorToWrite& a, const TensorToWrite& b) {
    const auto order = [](const SafetensorsInfo& tensor) {
      return std::pair(-safetensors_item_size(tensor.dtype), std::string_view(tensor.name));
    };
    return order(a.info) < order(b.info);
  });
  std::vector<SafetensorsInfo> infos;
  for (const TensorToWrite& tensor : shard) infos.push_back(tensor.info);
  SafetensorsWriter writer(path, std::move(infos));
  for (const TensorToWrite& tensor : shard) {
    tensor.write([&](std::span<const std::byte> bytes) { writer.write(tensor.info.name, bytes); });
  }
  writer.finish();
}

void write_index(const std::string& folder, const std::vector<Shard>& shards) {
  int64_t total = 0;
  std::map<std::string, std::string> weight_map;
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const TensorToWrite& tensor : shards[i]) {
      total += bytes_of(tensor.info);
      weight_map[tensor.info.name] = shard_name(i, shards.size());
    }
  }
  const nlohmann::ordered_json index{{"metadata", {{"total_size", total}}},
                                     {"weight_map", weight_map}};
  write_file((fs::path(folder) / kTensorIndex).string(), index.dump(2) + "\n");
}

}  // namespace

int64_t bytes_of(const SafetensorsInfo& tensor) {
  int64_t bytes = safetensors_item_size(tensor.dtype);
  for (const int64_t size : tensor.shape) bytes *= size;
  return bytes;
}

void write_tensor_files(const std::string& folder, std::vector<TensorToWrite> tensors,
                        int64_t max_shard_bytes) {
  check(max_shard_bytes > 0, "write_tensor_files: max_shard_bytes must be positive; got ",
        max_shard_bytes);
  const std::vector<Shard> shards = cut_into_shards(tensors, max_shard_bytes);
  for (size_t i = 0; i < shards.size(); ++i) {
    write_shard((fs::path(folder) / shard_name(i, shards.size())).string(), shards[i]);
  }
  if (shards.size() > 1) write_index(folder, shards);
}

}  // namespace xtrain
