#pragma once
// A file mapped into memory for reading.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace xtrain {

// Maps the whole file read-only; pages are read when touched. Move-only. The bytes live as long as
// the object, and the file must not be cut short meanwhile. An empty file gives an empty span.
// Throws InputError naming the path when it is missing, unreadable or not a regular file.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const { return {data(), bytes_.size()}; }
  const char* data() const { return reinterpret_cast<const char*>(bytes_.data()); }
  int64_t size() const { return static_cast<int64_t>(bytes_.size()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace xtrain
