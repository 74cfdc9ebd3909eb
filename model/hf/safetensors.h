#pragma once
// The safetensors format: named tensors in one file, without code.
//
//   8 bytes   N, length of the header, little-endian
//   N bytes   JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...},
//             optionally "__metadata__": {"key": "string", ...}; may end in spaces
//   the rest  row-major little-endian values; offsets count from its start and cover it exactly
//
// Source: https://huggingface.co/docs/safetensors

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/atomic_file.h"
#include "core/mapped_file.h"

namespace xtrain {

// Bytes of one value: F64 I64 U64 8, F32 I32 U32 4, F16 BF16 I16 U16 2, BOOL I8 U8 F8_E4M3 F8_E5M2
// 1; 0 for any other name.
int64_t safetensors_item_size(std::string_view dtype);

std::string shape_text(const std::vector<int64_t>& shape);  // "(2, 3)"

struct SafetensorsInfo {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;  // empty: a scalar; a 0 in it: no values
};

struct SafetensorsEntry : SafetensorsInfo {
  std::span<const std::byte> bytes;  // in the mapped file; of any alignment
};

// Reads a file, checking all of its header first. Throws InputError naming file and tensor.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }  // as they lie
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  bool has(const std::string& name) const { return index_.contains(name); }
  const SafetensorsEntry& at(const std::string& name) const;  // InputError if there is none

 private:
  MappedFile file_;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, size_t> index_;
  std::map<std::string, std::string> metadata_;
};

// Writes a file that appears whole or not at all: construct, write every tensor's bytes in the
// order of `tensors`, each in one or more pieces, then finish(). The values begin at a multiple
// of 8. Throws Error naming the file.
class SafetensorsWriter {
 public:
  using Metadata = std::map<std::string, std::string>;

  SafetensorsWriter(const std::string& path, std::vector<SafetensorsInfo> tensors,
                    const Metadata& metadata = {{"format", "pt"}});

  void write(std::string_view name, std::span<const std::byte> bytes);
  void finish();

 private:
  void advance();

  std::string path_;
  std::vector<SafetensorsInfo> tensors_;
  size_t current_ = 0;   // the tensor to write next
  int64_t missing_ = 0;  // its bytes still to come
  AtomicFile file_;
};

}  // namespace xtrain
