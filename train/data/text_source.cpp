#include "train/data/text_source.h"

#include <algorithm>
#include <utility>

namespace xtrain {

ByteSource::ByteSource(MappedFile file) : file_(std::move(file)) {}

void ByteSource::read(int64_t offset, std::span<int32_t> out) const {
  check_range(*this, offset, static_cast<int64_t>(out.size()));
  const auto* bytes = reinterpret_cast<const unsigned char*>(file_.data());
  std::copy_n(bytes + offset, out.size(), out.begin());
}

EncodedSource::EncodedSource(std::string name, std::string_view text, const Vocabulary& vocabulary)
    : name_(std::move(name)),
      reader_(vocabulary.kind() == Vocabulary::Kind::chars ? "text, characters as tokens"
                                                           : "text, byte-pair tokens"),
      ids_(vocabulary.encode(text, name_)) {}

void EncodedSource::read(int64_t offset, std::span<int32_t> out) const {
  check_range(*this, offset, static_cast<int64_t>(out.size()));
  std::copy_n(ids_.begin() + offset, out.size(), out.begin());
}

}  // namespace xtrain
