#pragma once
// Text as tokens: their bytes, or the ids that a vocabulary gives them.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
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

// Ids of characters or of byte-pair tokens. These have no fixed width, so they are kept in memory,
// four bytes each.
class EncodedSource : public TokenSource {
 public:
  // `name` is the file, or what stands for it.
  EncodedSource(std::string name, std::string_view text, const Vocabulary& vocabulary);
  int64_t size() const override { return static_cast<int64_t>(ids_.size()); }
  void read(int64_t offset, std::span<int32_t> out) const override;
  std::string name() const override { return name_; }
  std::string reader() const override { return reader_; }

 private:
  std::string name_, reader_;
  std::vector<int32_t> ids_;
};

}  // namespace xtrain
