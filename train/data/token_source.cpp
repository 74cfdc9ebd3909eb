#include "train/data/token_source.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace xtrain {

void check_range(const TokenSource& source, int64_t offset, int64_t count) {
  if (offset >= 0 && count <= source.size() && offset <= source.size() - count) return;
  fail(source.name(), ": tokens ", offset, "..", offset + count - 1, " were asked for; it holds ",
       source.size());
}

JoinedSource::JoinedSource(std::vector<std::shared_ptr<const TokenSource>> parts)
    : parts_(std::move(parts)) {
  check(!parts_.empty(), "joined source: at least one part is needed");
  int64_t end = 0;
  for (const auto& part : parts_) {
    check_input(part->size() > 0, part->name(), ": holds no tokens; remove it from the list");
    ends_.push_back(end += part->size());
  }
}

template <class Use>
void JoinedSource::for_each_piece(int64_t offset, std::span<int32_t> tokens, const Use& use) const {
  check_range(*this, offset, static_cast<int64_t>(tokens.size()));
  size_t part =
      static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), offset) - ends_.begin());
  for (; !tokens.empty(); ++part) {
    const size_t count = std::min(tokens.size(), static_cast<size_t>(ends_[part] - offset));
    use(*parts_[part], offset - (ends_[part] - parts_[part]->size()), tokens.first(count));
    offset += static_cast<int64_t>(count);
    tokens = tokens.subspan(count);
  }
}

void JoinedSource::read(int64_t offset, std::span<int32_t> out) const {
  for_each_piece(offset, out, [](const TokenSource& part, int64_t at, std::span<int32_t> piece) {
    part.read(at, piece);
  });
}

void JoinedSource::mask_targets(int64_t offset, std::span<int32_t> targets) const {
  for_each_piece(offset, targets,
                 [](const TokenSource& part, int64_t at, std::span<int32_t> piece) {
                   part.mask_targets(at, piece);
                 });
}

std::string JoinedSource::name() const {
  if (parts_.size() == 1) return parts_.front()->name();
  return text(parts_.size(), " files (", parts_.front()->name(), " ... ", parts_.back()->name(),
              ")");
}

std::string JoinedSource::reader() const {
  std::vector<std::string> readers;
  std::string all;
  for (const auto& part : parts_) {
    const std::string reader = part->reader();
    if (std::find(readers.begin(), readers.end(), reader) != readers.end()) continue;
    all += (readers.empty() ? "" : "; ") + reader;
    readers.push_back(reader);
  }
  return all;
}

SlicedSource::SlicedSource(std::shared_ptr<const TokenSource> whole, int64_t begin, int64_t end)
    : whole_(std::move(whole)), begin_(begin), end_(end) {
  check(0 <= begin && begin <= end, "slice: 0 <= begin <= end must hold; got ", begin, ", ", end);
  check_range(*whole_, begin, end - begin);
}

void SlicedSource::read(int64_t offset, std::span<int32_t> out) const {
  check_range(*this, offset, static_cast<int64_t>(out.size()));
  whole_->read(begin_ + offset, out);
}

void SlicedSource::mask_targets(int64_t offset, std::span<int32_t> targets) const {
  check_range(*this, offset, static_cast<int64_t>(targets.size()));
  whole_->mask_targets(begin_ + offset, targets);
}

std::string SlicedSource::name() const {
  return text(whole_->name(), " (its part from token ", begin_, " to token ", end_, ")");
}

}  // namespace xtrain
