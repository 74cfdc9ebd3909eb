#include "train/generate/text_stream.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace xtrain {
namespace {

// Bytes at the end of `text` with which `word` begins, fewer than all of it.
size_t begun_at_end(std::string_view text, std::string_view word) {
  for (size_t n = std::min(text.size(), word.size() - 1); n > 0; --n) {
    if (text.ends_with(word.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  for (const std::string& word : strings_) {
    check_input(!word.empty(), "a stop string must hold at least one character");
  }
}

std::string StopStrings::push(std::string_view piece) {
  if (stopped_) return "";
  std::string text = std::exchange(held_, {});
  text += piece;
  size_t end = std::string::npos, kept = 0;
  for (const std::string& word : strings_) {
    end = std::min(end, text.find(word));
    kept = std::max(kept, begun_at_end(text, word));
  }
  stopped_ = end != std::string::npos;
  if (!stopped_) {
    end = text.size() - kept;
    held_ = text.substr(end);
  }
  text.resize(end);
  return text;
}

std::string StopStrings::finish() {
  return std::exchange(held_, {});
}

std::string TextStream::push(int32_t id) {
  return characters_.push(stops_.push(vocabulary_.decode({&id, 1})));
}

std::string TextStream::finish() {
  std::string rest = characters_.push(stops_.finish());
  return rest + characters_.finish();
}

}  // namespace xtrain
