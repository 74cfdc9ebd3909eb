#pragma once
// The files that a user's list of inputs stands for.

#include <cstdint>
#include <string>
#include <vector>

namespace xtrain {

struct InputFile {
  std::string path;  // "-": standard input
  int64_t bytes = 0;
  int64_t modified_ns = 0;
  bool stream = false;  // standard input or a pipe: read once, in order, of unknown size

  bool operator==(const InputFile&) const = default;
};

// Files, folders (all files below, sorted by path; hidden ones and links to folders are left out),
// glob patterns (sorted) and "-", in the order given. Throws InputError for what cannot be found or
// read, and for a folder or pattern without files.
std::vector<InputFile> list_input_files(const std::vector<std::string>& inputs);

// The paths that patterns stand for: sorted for each pattern. One that names an existing file, and
// one that matches nothing, stand for themselves.
std::vector<std::string> expand_patterns(const std::vector<std::string>& patterns);

}  // namespace xtrain
