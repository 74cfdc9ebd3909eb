#pragma once
// A file mapped into memory for reading.

#include <cstddef>
#include <span>
#include <string>

namespace xtrain {

// Maps the whole file read-only; pages are read when touched. Move-only. The bytes live as long as
// the object. An empty file gives an empty span.
// Throws InputError naming the path when it is missing, unreadable or not a regular file.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace xtrain
