#pragma once
// The tensors of a folder: those of model.safetensors, or of the shards that
// model.safetensors.index.json names.

#include <deque>
#include <map>
#include <string>

#include "model/hf/safetensors.h"

namespace xtrain {

class TensorFiles {
 public:
  // Reads headers only. InputError naming the file when one is missing or malformed, or when index
  // and shards do not agree exactly. Where both are there the one file counts, as for others.
  explicit TensorFiles(const std::string& folder);

  const std::string& path() const { return path_; }  // of the file or the index, for errors
  const std::deque<SafetensorsFile>& files() const { return files_; }
  // By name, over all files.
  const std::map<std::string, const SafetensorsEntry*>& entries() const { return entries_; }

  const SafetensorsEntry* find(const std::string& name) const;  // null when there is none
  const SafetensorsEntry& at(const std::string& name) const;    // InputError when there is none

 private:
  void add_file(const std::string& path);
  void add_shards(const std::string& folder);

  std::string path_;
  std::deque<SafetensorsFile> files_;
  std::map<std::string, const SafetensorsEntry*> entries_;
};

inline constexpr const char* kTensorFile = "model.safetensors";
inline constexpr const char* kTensorIndex = "model.safetensors.index.json";

}  // namespace xtrain
