#pragma once
// A file that appears whole or not at all.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace xtrain {

// Forces a folder's entries to disk, so that a file renamed into it is found there after a crash.
// Error naming the folder and the system's reason.
void sync_folder(const std::string& path);

// Bytes go to "PATH.partial" beside the target. commit() forces them to disk, renames the file to
// PATH, replacing what was there, and forces the folder's entry to disk: after a crash PATH holds
// either its old content or all of the new. Without commit() the destructor removes the partial
// file; one left behind by a killed process is overwritten by the next attempt.
// Throws Error naming the path and the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void commit();

 private:
  std::string path_, partial_path_;
  int descriptor_ = -1;
};

// An AtomicFile of this content, committed.
void write_file(const std::string& path, std::string_view content);

}  // namespace xtrain
