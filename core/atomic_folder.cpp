#include "core/atomic_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "core/atomic_file.h"
#include "core/error.h"

namespace xtrain {
namespace {

namespace fs = std::filesystem;

// In a folder that nobody finished.
constexpr const char* kMark = ".unfinished";

bool is_same_file(int descriptor, const std::string& path) {
  struct stat a, b;
  return fstat(descriptor, &a) == 0 && stat(path.c_str(), &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

// "DIR/" and "DIR" are the same folder.
std::string without_last_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

AtomicFolder::AtomicFolder(const std::string& path)
    : target_(without_last_slash(path)), partial_(target_ + ".partial") {
  check_input(!path.empty() && path.find('\0') == std::string::npos,
              "a folder to write must have a name");
  std::error_code error;
  const bool is_free = !fs::exists(fs::symlink_status(target_, error)) ||
                       (fs::is_directory(target_, error) && fs::is_empty(target_, error));
  check_input(is_free, target_, ": is there already; remove it or choose another name");
  fs::create_directories(fs::path(partial_).parent_path(), error);
  error.clear();
  const bool created = fs::create_directory(partial_, error);
  check(!error, partial_, ": cannot create the folder: ", error.message());
  const bool left_behind =
      created || fs::exists(file(kMark), error) || fs::is_empty(partial_, error);
  check_input(left_behind, partial_, ": is in the way; rename it or choose another name");
  take();
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!committed_ && lock_ >= 0) fs::remove_all(partial_, ignored);
  if (lock_ >= 0) ::close(lock_);
}

// The lock lies on the folder itself, so a killed process leaves none. A folder that has just been
// committed by another process has another name and is not touched.
void AtomicFolder::take() {
  const int descriptor = ::open(partial_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  check(descriptor >= 0, partial_, ": cannot open the folder");
  const bool is_mine =
      ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 && is_same_file(descriptor, partial_);
  if (!is_mine) ::close(descriptor);
  check(is_mine, target_, ": another process is writing this folder");
  lock_ = descriptor;
  for (const auto& entry : fs::directory_iterator(partial_)) fs::remove_all(entry.path());
  write_file(file(kMark), "");
}

std::string AtomicFolder::file(const std::string& name) const {
  return (fs::path(partial_) / name).string();
}

void AtomicFolder::write(const std::string& name, const std::string& content) const {
  write_file(file(name), content);
}

void AtomicFolder::commit() {
  check(!committed_, target_, ": must be committed once");
  std::error_code error;
  fs::remove(file(kMark), error);
  fs::rename(partial_, target_, error);
  check(!error, target_, ": cannot rename the folder to this: ", error.message());
  committed_ = true;
  sync_folder(fs::path(target_).parent_path().string());
}

}  // namespace xtrain
