#include "layering/include_rules.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string_view>

namespace xtrain::layering {
namespace {

namespace fs = std::filesystem;
using Patterns = std::vector<std::string>;  // shell patterns whose * also spans slashes

// A file may include its own layer and the ones before it. Nothing includes the tests.
constexpr std::array kLayers = {"core",  "autodiff",    "ops",   "model",
                                "train", "distributed", "tools", "tests"};

constexpr int kAnyNumber = 0;

struct HeaderRule {
  std::string library;
  Patterns headers;
  Patterns allowed_in;
  int most_files;  // so many files of the tree may include it
};

const Patterns kCudaFiles = {"core/cuda/*", "ops/*_cuda.cu", "ops/*_cuda.h", "train/*_cuda.cu",
                             "tests/*_cuda.cu"};

// The first row that names a header decides. Headers of the C++ standard library are free.
const std::vector<HeaderRule> kHeaderRules = {
    {"the CUDA toolkit",
     {"cuda*", "cublas*", "cooperative_groups*", "cub/*", "mma.h", "nv*"},
     kCudaFiles,
     kAnyNumber},
    {"core/cuda",
     {"core/cuda/*"},
     {"core/*", "ops/*_cuda.cu", "ops/*_cuda.h", "train/*_cuda.cu", "distributed/*", "tools/*",
      "tests/*"},
     kAnyNumber},
    {"CUPTI", {"cupti*"}, {"tools/*.cpp"}, 1},
    {"the ABI of C++", {"cxxabi.h"}, {"tools/*.cpp"}, 1},
    {"NCCL", {"nccl.h"}, {"distributed/*"}, kAnyNumber},
    {"Gloo", {"gloo/*"}, {"distributed/*"}, kAnyNumber},
    {"sockets",
     {"sys/socket.h", "sys/un.h", "netdb.h", "netinet/*", "arpa/*", "poll.h"},
     {"distributed/*"},
     kAnyNumber},
    {"CLI11", {"CLI/*"}, {"tools/*"}, kAnyNumber},
    {"Catch2", {"catch2/*"}, {"tests/support/*"}, kAnyNumber},
    {"nlohmann/json",
     {"nlohmann/*"},
     {"core/*.cpp", "model/*.cpp", "train/*.cpp", "tools/*.cpp", "tests/*"},
     kAnyNumber},
    {"OpenBLAS", {"cblas.h", "openblas*"}, {"core/*.cpp"}, 1},
    {"OpenMP", {"omp.h"}, {"core/*.cpp"}, 1},
    {"xxHash", {"xxhash.h", "xxh3.h"}, {"core/*.cpp", "train/*.cpp"}, 1},
    {"PCRE2", {"pcre2.h"}, {"train/*.cpp"}, 1},
    {"utf8proc", {"utf8proc.h"}, {"train/*.cpp"}, 1},
    {"the operating system",
     {"dirent.h", "fcntl.h", "fnmatch.h", "glob.h", "pty.h", "sched.h", "semaphore.h", "signal.h",
      "sys/*", "unistd.h"},
     {"*.cpp", "tests/*"},
     kAnyNumber},
};

struct Include {
  int line;
  char opening;      // '<', '"', or 0 where a macro names the file
  std::string name;  // as written between the delimiters
};

bool matches_any(const Patterns& patterns, const std::string& text) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
  });
}

std::string join(const Patterns& patterns) {
  std::string joined;
  for (const std::string& pattern : patterns) joined += (joined.empty() ? "" : ", ") + pattern;
  return joined;
}

// Position in kLayers of the layer that a root-relative path lies in.
std::optional<size_t> layer_of(std::string_view path) {
  const auto found = std::find(kLayers.begin(), kLayers.end(), path.substr(0, path.find('/')));
  if (found == kLayers.end()) return std::nullopt;
  return found - kLayers.begin();
}

std::optional<Include> parse_include(std::string_view code, int line) {
  const auto skip_spaces = [&] {
    code.remove_prefix(std::min(code.find_first_not_of(" \t\r"), code.size()));
  };
  const auto skip = [&](std::string_view word) {
    skip_spaces();
    if (!code.starts_with(word)) return false;
    code.remove_prefix(word.size());
    return true;
  };
  if (!skip("#") || !skip("include")) return std::nullopt;
  skip_spaces();
  if (code.empty() || (code[0] != '<' && code[0] != '"')) return Include{line, 0, ""};
  const char opening = code[0];
  code.remove_prefix(1);
  return Include{line, opening, std::string(code.substr(0, code.find_first_of(">\"")))};
}

std::vector<Include> read_includes(const fs::path& path) {
  std::ifstream in(path);
  std::vector<Include> includes;
  std::string text;
  for (int line = 1; std::getline(in, text); ++line) {
    if (const auto include = parse_include(text, line)) includes.push_back(*include);
  }
  return includes;
}

bool is_source(const fs::path& path) {
  static const std::set<std::string> extensions = {".h", ".hpp", ".cpp", ".cu", ".cuh"};
  return extensions.count(path.extension().string()) > 0;
}

std::vector<std::string> source_files(const fs::path& root) {
  std::vector<std::string> files;
  for (const std::string layer : kLayers) {
    if (!fs::is_directory(root / layer)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / layer)) {
      if (entry.is_regular_file() && is_source(entry.path())) {
        files.push_back(entry.path().lexically_relative(root).generic_string());
      }
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

class Checker {
 public:
  explicit Checker(fs::path root) : root_(std::move(root)) {}

  Report run() {
    for (const std::string& file : source_files(root_)) {
      ++report_.files;
      const bool cuda_source = file.ends_with(".cu") || file.ends_with(".cuh");
      if (cuda_source && !matches_any(kCudaFiles, file)) {
        violation(file, 1, "CUDA code stands only in " + join(kCudaFiles));
      }
      for (const Include& include : read_includes(root_ / file)) {
        ++report_.includes;
        check(file, include);
      }
    }
    return report_;
  }

 private:
  void violation(const std::string& file, int line, const std::string& message) {
    report_.violations.push_back({file, line, message});
  }

  void check(const std::string& file, const Include& include) {
    const std::string& name = include.name;
    if (include.opening == 0) {
      violation(file, include.line, "#include must name its file, not a macro");
    } else if (name.starts_with("./") || name.starts_with("../") ||
               name.find("/../") != std::string::npos || name.find("/./") != std::string::npos) {
      violation(file, include.line, "\"" + name + "\" must be written from the root of the tree");
    } else if (include.opening == '"') {
      check_own_header(file, include);
    } else if (layer_of(name) && name.find('/') != std::string::npos) {
      violation(file, include.line, "<" + name + "> is a header of the tree: write it in quotes");
    } else {
      check_header_rules(file, include);
    }
  }

  void check_own_header(const std::string& file, const Include& include) {
    // Test code writes its own headers from tests/.
    const std::string& name = include.name;
    const bool in_tests = fs::is_regular_file(root_ / "tests" / name);
    if (!in_tests && !(layer_of(name) && fs::is_regular_file(root_ / name))) {
      return violation(file, include.line,
                       "\"" + name + "\" is no file of the tree (third-party headers go in <>)");
    }
    const size_t from = *layer_of(file);
    const size_t to = in_tests ? kLayers.size() - 1 : *layer_of(name);
    if (to > from) {
      return violation(file, include.line,
                       std::string(kLayers[from]) + " must not include the higher layer " +
                           kLayers[to] + " (\"" + name + "\")");
    }
    if (rule_for(name)) check_header_rules(file, include);
  }

  void check_header_rules(const std::string& file, const Include& include) {
    const std::string& name = include.name;
    const HeaderRule* rule = rule_for(name);
    if (!rule) {
      const bool standard = name.find_first_of("./") == std::string::npos;
      if (!standard) {
        violation(file, include.line, "<" + name + "> has no row in the table of header rules");
      }
      return;
    }
    if (!matches_any(rule->allowed_in, file)) {
      return violation(file, include.line,
                       name + " belongs to " + rule->library + ", which only " +
                           join(rule->allowed_in) + " may include");
    }
    std::set<std::string>& users = users_[rule->library];
    users.insert(file);
    if (rule->most_files != kAnyNumber && static_cast<int>(users.size()) > rule->most_files) {
      violation(file, include.line,
                rule->library + " is included by " + std::to_string(users.size()) +
                    " files and may be by " + std::to_string(rule->most_files) + ": " +
                    join(Patterns(users.begin(), users.end())));
    }
  }

  static const HeaderRule* rule_for(const std::string& header) {
    for (const HeaderRule& rule : kHeaderRules) {
      if (matches_any(rule.headers, header)) return &rule;
    }
    return nullptr;
  }

  const fs::path root_;
  Report report_;
  std::map<std::string, std::set<std::string>> users_;  // of each library so far
};

}  // namespace

Report check_includes(const fs::path& root) {
  return Checker(root).run();
}

std::string to_string(const std::vector<Violation>& violations) {
  std::string text;
  for (const Violation& violation : violations) {
    text += violation.file + ":" + std::to_string(violation.line) + ": " + violation.message + "\n";
  }
  return text;
}

}  // namespace xtrain::layering
