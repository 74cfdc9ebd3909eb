#include "train/data/input_files.h"

#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "core/error.h"

namespace xtrain {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (auto entry = fs::recursive_directory_iterator(folder, error);
       !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code gone;
    const bool hidden = entry->path().filename().native().starts_with('.');
    if (hidden && entry->is_directory(gone)) entry.disable_recursion_pending();
    if (!hidden && entry->is_regular_file(gone)) paths.push_back(entry->path().string());
  }
  check_input(!error, folder, ": the folder cannot be read: ", error.message());
  check_input(!paths.empty(), folder, ": the folder must hold files; it has none that are not ",
              "hidden");
  std::sort(paths.begin(), paths.end());
  return paths;
}

InputFile describe(const std::string& path) {
  // The calls come before the checks: arguments, errno among them, have no order.
  struct stat status {};
  const bool is_there = ::stat(path.c_str(), &status) == 0;
  check_input(is_there, path, ": cannot be opened: ", std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return {path, 0, 0, true};
  const bool is_readable = ::access(path.c_str(), R_OK) == 0;
  check_input(is_readable, path, ": cannot be opened: ", std::strerror(errno));
  return {path, status.st_size,
          int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec, false};
}

}  // namespace

std::vector<std::string> expand_patterns(const std::vector<std::string>& patterns) {
  std::vector<std::string> paths;
  for (const std::string& pattern : patterns) {
    std::error_code ignored;
    if (fs::exists(pattern, ignored)) {  // names may hold the characters of patterns
      paths.push_back(pattern);
      continue;
    }
    glob_t found{};
    const int status = glob(pattern.c_str(), GLOB_NOSORT | GLOB_NOCHECK, nullptr, &found);
    std::vector<std::string> matches(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
    check_input(status == 0, pattern, ": cannot be expanded to file names");
    std::sort(matches.begin(), matches.end());
    paths.insert(paths.end(), matches.begin(), matches.end());
  }
  return paths;
}

std::vector<InputFile> list_input_files(const std::vector<std::string>& inputs) {
  std::vector<InputFile> files;
  for (const std::string& input : inputs) {
    if (input == "-") {
      files.push_back({input, 0, 0, true});
      continue;
    }
    for (const std::string& path : expand_patterns({input})) {
      std::error_code ignored;
      if (!fs::is_directory(path, ignored)) {
        files.push_back(describe(path));
        continue;
      }
      for (const std::string& below : files_below(path)) files.push_back(describe(below));
    }
  }
  std::set<std::string> streams;
  for (const InputFile& file : files) {
    check_input(!file.stream || streams.insert(file.path).second, file.path,
                ": can be read only once; it is named twice");
  }
  return files;
}

}  // namespace xtrain
