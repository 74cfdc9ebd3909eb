#pragma once
// Which file may include what: the order of the layers and the home of every third-party header.

#include <filesystem>
#include <string>
#include <vector>

namespace xtrain::layering {

struct Violation {
  std::string file;  // relative to the tree's root
  int line = 0;      // from 1
  std::string message;
};

struct Report {
  int files = 0;
  int includes = 0;
  std::vector<Violation> violations;  // by file, then line
};

// Reads the #include lines of every source file in the layers' folders below `root`.
Report check_includes(const std::filesystem::path& root);

// One "file:line: message" a line.
std::string to_string(const std::vector<Violation>& violations);

}  // namespace xtrain::layering
