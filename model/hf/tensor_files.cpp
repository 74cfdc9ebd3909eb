#include "model/hf/tensor_files.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "core/config_reader.h"
#include "core/error.h"
#include "core/mapped_file.h"

namespace xtrain {
namespace {

namespace fs = std::filesystem;

// Tensor to shard.
std::map<std::string, std::string> read_weight_map(const std::string& path) {
  const MappedFile file(path);
  const auto json = nlohmann::json::parse(checked_json_object(file.text(), path));
  const auto found = json.find("weight_map");
  check_input(found != json.end() && found->is_object(), path,
              ": must have an object \"weight_map\" of tensors and their files");
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, shard] : found->items()) {
    check_input(shard.is_string(), path, ": weight_map: ", tensor, " must name a file; got ",
                shard.type_name());
    const auto name = shard.get<std::string>();
    check_input(!name.empty() && fs::path(name).filename() == name && name != "." && name != "..",
                path, ": weight_map: ", tensor, " must name a file of the same folder; got \"",
                name, "\"");
    shards.emplace(tensor, name);
  }
  return shards;
}

// Where a folder has no safetensors: what it may have instead.
std::string other_weights(const std::string& folder) {
  const std::set<std::string> kinds{".pt", ".pth", ".gguf", ".h5", ".msgpack"};
  std::set<std::string> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename(), kind = entry.path().extension();
    const bool is_pickle = kind == ".bin" && name.find("model") != std::string::npos;
    if (is_pickle || kinds.contains(kind)) found.insert(name);
  }
  if (found.empty()) return "";
  return "; it holds " + *found.begin() +
         ", a format that is not read: save the model as safetensors, as transformers' "
         "save_pretrained does";
}

}  // namespace

TensorFiles::TensorFiles(const std::string& folder) {
  const fs::path one = fs::path(folder) / kTensorFile, index = fs::path(folder) / kTensorIndex;
  std::error_code ignored;
  if (fs::exists(one, ignored)) {
    path_ = one.string();
    add_file(path_);
    return;
  }
  check_input(fs::exists(index, ignored), folder, ": holds neither ", kTensorFile, " nor ",
              kTensorIndex, other_weights(folder));
  path_ = index.string();
  add_shards(folder);
}

void TensorFiles::add_file(const std::string& path) {
  const SafetensorsFile& file = files_.emplace_back(path);
  for (const SafetensorsEntry& entry : file.entries()) {
    check_input(entries_.emplace(entry.name, &entry).second, path, ": tensor ", entry.name,
                " is in another shard too");
  }
}

void TensorFiles::add_shards(const std::string& folder) {
  const std::map<std::string, std::string> shard_of = read_weight_map(path_);
  std::map<std::string, size_t> tensors_of;
  for (const auto& [tensor, shard] : shard_of) ++tensors_of[shard];
  for (const auto& [shard, count] : tensors_of) {
    add_file((fs::path(folder) / shard).string());
    const SafetensorsFile& file = files_.back();
    for (const SafetensorsEntry& entry : file.entries()) {
      const auto mapped = shard_of.find(entry.name);
      check_input(mapped != shard_of.end(), path_, ": weight_map lacks tensor ", entry.name,
                  ", which ", shard, " holds");
      check_input(mapped->second == shard, path_, ": weight_map says that tensor ", entry.name,
                  " is in ", mapped->second, "; it is in ", shard);
    }
    for (const auto& [tensor, its_shard] : shard_of) {
      check_input(its_shard != shard || file.has(tensor), path_, ": weight_map says that tensor ",
                  tensor, " is in ", shard, "; it is not");
    }
  }
}

const SafetensorsEntry* TensorFiles::find(const std::string& name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : found->second;
}

const SafetensorsEntry& TensorFiles::at(const std::string& name) const {
  const SafetensorsEntry* entry = find(name);
  check_input(entry != nullptr, path_, ": tensor ", name, " is missing");
  return *entry;
}

}  // namespace xtrain
