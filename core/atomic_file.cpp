#include "core/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/error.h"

namespace xtrain {
namespace {

[[noreturn]] void fail_with_errno(const std::string& path, const char* what) {
  const int reason = errno;
  fail(path, ": cannot ", what, " the file: ", std::strerror(reason));
}

}  // namespace

void sync_folder(const std::string& path) {
  const std::string folder = path.empty() ? "." : path;
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int opened = errno;
  check(descriptor >= 0, folder,
        ": cannot open the folder to force to disk: ", std::strerror(opened));
  // EINVAL: a file system whose folders need no forcing.
  const bool synced = ::fsync(descriptor) == 0 || errno == EINVAL;
  const int reason = errno;
  ::close(descriptor);
  check(synced, folder, ": cannot force the folder to disk: ", std::strerror(reason));
}

AtomicFile::AtomicFile(const std::string& path) : path_(path), partial_path_(path + ".partial") {
  descriptor_ = ::open(partial_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail_with_errno(partial_path_, "create");
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(partial_path_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  check(descriptor_ >= 0, path_, ": must be written before commit()");
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_with_errno(partial_path_, "write");
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span<const char>(text.data(), text.size())));
}

void AtomicFile::commit() {
  check(descriptor_ >= 0, path_, ": must be committed once");
  if (::fsync(descriptor_) != 0) fail_with_errno(partial_path_, "force to disk");
  if (std::rename(partial_path_.c_str(), path_.c_str()) != 0) fail_with_errno(path_, "rename to");
  // Renamed: nothing is left for the destructor to remove.
  if (::close(std::exchange(descriptor_, -1)) != 0) fail_with_errno(path_, "close");
  sync_folder(std::filesystem::path(path_).parent_path().string());
}

void write_file(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

}  // namespace xtrain
