#include "model/hf/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "core/error.h"
#include "model/hf/safetensors_header.h"

namespace xtrain {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

using Tensor = SafetensorsHeader::Tensor;

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit

// Bytes of all values; none if they are more than fit 63 bits. Sizes of 0 are left out of the
// product, so that it bounds every stride of the tensor too.
std::optional<int64_t> byte_count(const SafetensorsInfo& tensor) {
  int64_t bytes = safetensors_item_size(tensor.dtype);
  for (const int64_t size : tensor.shape) {
    if (size != 0 && __builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  const bool is_empty =
      std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
  return is_empty ? 0 : bytes;
}

std::string_view header_of(const MappedFile& file) {
  const auto bytes = file.bytes();
  check_input(bytes.size() >= kLengthBytes, file.path(),
              ": must begin with the 8-byte length of its header; got a file of ", bytes.size(),
              " bytes");
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  const uint64_t available = bytes.size() - kLengthBytes;
  check_input(length >= 2 && length <= kMaxHeaderBytes, file.path(), ": the header must have 2 to ",
              kMaxHeaderBytes, " bytes; its length is given as ", length);
  check_input(length <= available, file.path(), ": the header's length is given as ", length,
              " bytes; only ", available, " follow");
  return {reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length};
}

void check_size(const Tensor& tensor, int64_t data_bytes, const std::string& path) {
  check_input(tensor.begin <= tensor.end && tensor.end <= data_bytes, path, ": tensor ",
              tensor.name, ": data_offsets must rise and end within the file's ", data_bytes,
              " bytes of values; got ", tensor.begin, " and ", tensor.end);
  const std::optional<int64_t> bytes = byte_count(tensor);
  check_input(bytes.has_value(), path, ": tensor ", tensor.name,
              ": must have fewer than 2^63 bytes; got shape ", shape_text(tensor.shape), " of ",
              tensor.dtype);
  check_input(*bytes == tensor.end - tensor.begin, path, ": tensor ", tensor.name, ": shape ",
              shape_text(tensor.shape), " of ", tensor.dtype, " needs ", *bytes,
              " bytes; data_offsets give ", tensor.end - tensor.begin);
}

// Sorts the tensors as they lie in the file and checks that they cover its values exactly.
void sort_and_check(std::vector<Tensor>& tensors, int64_t data_bytes, const std::string& path) {
  for (const Tensor& tensor : tensors) check_size(tensor, data_bytes, path);
  std::stable_sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  int64_t covered = 0;
  for (const Tensor& tensor : tensors) {
    check_input(tensor.begin == covered, path, ": tensor ", tensor.name,
                ": must begin where the one before ends, at ", covered, "; begins at ",
                tensor.begin, tensor.begin < covered ? " (they overlap)" : " (a hole)");
    covered = tensor.end;
  }
  check_input(covered == data_bytes, path, ": the tensors must cover the file's ", data_bytes,
              " bytes of values; they cover ", covered);
}

// The header that describes the tensors one after the other; fails on what a reader would refuse.
SafetensorsHeader lay_out(const std::vector<SafetensorsInfo>& tensors,
                          const SafetensorsWriter::Metadata& metadata, const std::string& path) {
  SafetensorsHeader header;
  header.metadata = metadata;
  std::set<std::string_view> names{"__metadata__"};
  int64_t offset = 0;
  for (const SafetensorsInfo& tensor : tensors) {
    check(names.insert(tensor.name).second, path, ": tensor ", tensor.name,
          ": the name is taken already");
    check(safetensors_item_size(tensor.dtype) > 0, path, ": tensor ", tensor.name,
          ": unknown dtype ", tensor.dtype);
    const bool has_sizes = std::all_of(tensor.shape.begin(), tensor.shape.end(),
                                       [](int64_t size) { return size >= 0; });
    const std::optional<int64_t> bytes = byte_count(tensor);
    int64_t end = 0;
    check(has_sizes && bytes && !__builtin_add_overflow(offset, *bytes, &end), path, ": tensor ",
          tensor.name, ": impossible shape ", shape_text(tensor.shape));
    header.tensors.push_back({tensor, offset, end});
    offset = end;
  }
  return header;
}

}  // namespace

int64_t safetensors_item_size(std::string_view dtype) {
  static const std::map<std::string_view, int64_t> sizes{
      {"F64", 8}, {"I64", 8},     {"U64", 8},     {"F32", 4},  {"I32", 4},
      {"U32", 4}, {"F16", 2},     {"I16", 2},     {"BF16", 2}, {"U16", 2},
      {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"U8", 1},   {"BOOL", 1}};
  const auto found = sizes.find(dtype);
  return found == sizes.end() ? 0 : found->second;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string all = "(";
  for (size_t i = 0; i < shape.size(); ++i) all += text(i == 0 ? "" : ", ", shape[i]);
  return all + ")";
}

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  const std::string_view json = header_of(file_);
  SafetensorsHeader header = parse_safetensors_header(json, path);
  const auto values = file_.bytes().subspan(kLengthBytes + json.size());
  sort_and_check(header.tensors, static_cast<int64_t>(values.size()), path);
  metadata_ = std::move(header.metadata);
  for (Tensor& tensor : header.tensors) {
    const auto bytes = values.subspan(static_cast<size_t>(tensor.begin),
                                      static_cast<size_t>(tensor.end - tensor.begin));
    index_.emplace(tensor.name, entries_.size());
    entries_.push_back({std::move(tensor), bytes});
  }
}

const SafetensorsEntry& SafetensorsFile::at(const std::string& name) const {
  const auto found = index_.find(name);
  check_input(found != index_.end(), path(), ": tensor ", name, " is missing");
  return entries_[found->second];
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<SafetensorsInfo> tensors,
                                     const Metadata& metadata)
    : path_(path), tensors_(std::move(tensors)), file_(path) {
  std::string json = safetensors_header_json(lay_out(tensors_, metadata, path));
  json.resize((json.size() + 7) / 8 * 8, ' ');
  check(json.size() <= kMaxHeaderBytes, path, ": the header must have at most ", kMaxHeaderBytes,
        " bytes; ", tensors_.size(), " tensors need ", json.size());
  const uint64_t length = json.size();
  file_.write(std::as_bytes(std::span(&length, 1)));
  file_.write(json);
  if (!tensors_.empty()) missing_ = *byte_count(tensors_[0]);
}

void SafetensorsWriter::advance() {
  ++current_;
  if (current_ < tensors_.size()) missing_ = *byte_count(tensors_[current_]);
}

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  while (missing_ == 0 && current_ < tensors_.size() && tensors_[current_].name != name) advance();
  const bool at_end = current_ == tensors_.size();
  check(!at_end && name == tensors_[current_].name, path_,
        ": tensors must be written whole and in the order announced; got ", name, " where ",
        at_end ? "the end" : tensors_[current_].name, " must follow");
  check(std::cmp_less_equal(bytes.size(), missing_), path_, ": tensor ", name, ": at most ",
        missing_, " more bytes must be written; got ", bytes.size());
  file_.write(bytes);
  missing_ -= static_cast<int64_t>(bytes.size());
}

void SafetensorsWriter::finish() {
  while (missing_ == 0 && current_ < tensors_.size()) advance();
  if (current_ < tensors_.size()) {
    fail(path_, ": every tensor must be written before finish(); ", missing_, " bytes of ",
         tensors_[current_].name, " are missing");
  }
  file_.commit();
}

}  // namespace xtrain
