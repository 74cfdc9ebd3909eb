#pragma once
// Text files as tokens: their bytes, or their characters.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/mapped_file.h"
#include "train/data/token_source.h"
#include "train/data/vocabulary.h"

namespace xtrain {

// Each byte is a token; nothing is translated, neither line ends nor a byte order mark.
class ByteSource : public TokenSource {
 public:
  explicit ByteSource(MappedFile file);
  int64_t size() const override { return file_.size(); }
  void read(int64_t offset, std::span<int32_t> out) const override;
  std::string name() const override { return file_.path(); }
  std::string reader() const override { return "text, bytes as tokens"; }

 private:
  MappedFile file_;
};

// Each UTF-8 character is a token. Characters have no fixed width, so the ids are kept in memory,
// four bytes each.
class CharSource : public TokenSource {
 public:
  CharSource(const MappedFile& file, const Vocabulary& vocabulary);
  int64_t size() const override { return static_cast<int64_t>(ids_.size()); }
  void read(int64_t offset, std::span<int32_t> out) const override;
  std::string name() const override { return name_; }
  std::string reader() const override { return "text, characters as tokens"; }

 private:
  std::string name_;
  std::vector<int32_t> ids_;
};

}  // namespace xtrain
