#include "core/atomic_folder.h"

#include <filesystem>

#include "core/atomic_file.h"
#include "core/error.h"

namespace xtrain {
namespace {

namespace fs = std::filesystem;

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
  fs::remove_all(partial_, error);
  error.clear();
  fs::create_directories(partial_, error);
  check(!error, partial_, ": cannot create the folder: ", error.message());
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(partial_, ignored);
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
  fs::rename(partial_, target_, error);
  check(!error, target_, ": cannot rename the folder to this: ", error.message());
  committed_ = true;
  sync_folder(fs::path(target_).parent_path().string());
}

}  // namespace xtrain
