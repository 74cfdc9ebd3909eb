#include "train/data/document_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "core/error.h"

namespace xtrain {
namespace {

constexpr size_t kBatchBytes = size_t{1} << 18;
constexpr size_t kMostParts = 4096;
constexpr size_t kReadBytes = size_t{1} << 20;

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

DocumentReader::DocumentReader(std::vector<InputFile> files, DocumentRules rules, TextCutter cutter)
    : files_(std::move(files)), rules_(std::move(rules)), cutter_(std::move(cutter)) {
  check_input(rules_.split_on.find('\n') == std::string::npos,
              "the marker that documents are split on must be one line");
}

DocumentReader::~DocumentReader() {
  if (descriptor_ > STDIN_FILENO) ::close(descriptor_);
}

void DocumentReader::open_file() {
  const InputFile& file = files_[static_cast<size_t>(position_.file)];
  descriptor_ = file.path == "-" ? STDIN_FILENO : ::open(file.path.c_str(), O_RDONLY | O_CLOEXEC);
  check_input(descriptor_ >= 0, file.path, ": cannot be opened: ", std::strerror(errno));
  if (file.stream) digest_ = std::make_unique<Checksum>();
  buffer_.clear();
  at_ = searched_ = uncuttable_ = 0;
  file_ended_ = false;
}

void DocumentReader::close_file() {
  const InputFile& file = files_[static_cast<size_t>(position_.file)];
  check_input(file.stream || position_.offset == file.bytes, file.path,
              ": must not change while it is read; it had ", file.bytes, " bytes, and now has ",
              position_.offset);
  if (descriptor_ > STDIN_FILENO) ::close(descriptor_);
  descriptor_ = -1;
  digest_.reset();
  position_ = {position_.file + 1, 0, 1, position_.document, false, true, position_.bytes, ""};
}

void DocumentReader::seek(const ReadPosition& position) {
  if (position.file == static_cast<int64_t>(files_.size()) || position.offset == 0) {
    position_ = position;
    return;
  }
  position_.file = position.file;
  open_file();
  const InputFile& file = files_[static_cast<size_t>(position.file)];
  if (!file.stream) {
    const bool is_there = ::lseek(descriptor_, position.offset, SEEK_SET) == position.offset;
    check_input(is_there, file.path, ": cannot go on from byte ", position.offset, ": ",
                std::strerror(errno));
  } else {
    while (position_.offset < position.offset) {
      if (window().empty()) read_more();
      check_input(!file_ended_ || !window().empty(), file.path, ": must bring the text of before; ",
                  "it ends after ", position_.offset, " bytes, and ", position.offset,
                  " had been read");
      const auto left = static_cast<size_t>(position.offset - position_.offset);
      consume(std::min(left, window().size()));
    }
    check_input(digest_->hex() == position.digest, file.path,
                ": must bring the text of before; its first ", position.offset,
                " bytes are others");
  }
  position_ = position;
}

bool DocumentReader::is_jsonl() const {
  return !rules_.jsonl_field.empty() ||
         files_[static_cast<size_t>(position_.file)].path.ends_with(".jsonl");
}

std::string DocumentReader::file_name(const ReadPosition& position) const {
  const std::string& path = files_[static_cast<size_t>(position.file)].path;
  return path == "-" ? "standard input" : path;
}

std::string DocumentReader::where(const ReadPosition& position) const {
  return file_name(position) + ':' + std::to_string(position.line);
}

std::string_view DocumentReader::window() const {
  return std::string_view(buffer_).substr(at_);
}

// Long windows grow by their own size, so that what is copied stays in proportion to the text.
void DocumentReader::read_more() {
  buffer_.erase(0, at_);
  at_ = 0;
  const size_t held = buffer_.size(), wanted = std::max(kReadBytes, held);
  buffer_.resize(held + wanted);
  ssize_t got;
  do {
    got = ::read(descriptor_, buffer_.data() + held, wanted);
  } while (got < 0 && errno == EINTR);
  buffer_.resize(held + static_cast<size_t>(std::max<ssize_t>(got, 0)));
  check_input(got >= 0, files_[static_cast<size_t>(position_.file)].path,
              ": cannot be read: ", std::strerror(errno));
  file_ended_ = got == 0;
}

void DocumentReader::consume(size_t bytes) {
  if (bytes == 0) return;
  if (digest_) digest_->add(std::as_bytes(std::span(window().substr(0, bytes))));
  position_.at_line_start = window()[bytes - 1] == '\n';
  at_ += bytes;
  position_.offset += static_cast<int64_t>(bytes);
  position_.bytes += static_cast<int64_t>(bytes);
  searched_ -= std::min(searched_, bytes);
  uncuttable_ = 0;
}

DocumentReader::Ending DocumentReader::find_line_end() {
  const std::string_view text = window();
  const size_t end = text.find('\n', searched_);
  if (end != std::string_view::npos) return {true, end, end + 1};
  searched_ = text.size();
  return {file_ended_, text.size(), text.size()};
}

DocumentReader::Ending DocumentReader::find_marker_line() {
  const std::string_view text = window();
  const std::string& marker = rules_.split_on;
  for (;;) {
    const size_t at = text.find(marker, searched_);
    if (at == std::string_view::npos) break;
    searched_ = at;
    const std::string_view behind = text.substr(at + marker.size());
    if (behind.size() < 2 && !file_ended_) return {false, at, at};
    const bool begins = at == 0 ? position_.at_line_start : text[at - 1] == '\n';
    const size_t line_end = behind.starts_with("\r\n") ? 2 : behind.starts_with('\n') ? 1 : 0;
    if (begins && (line_end > 0 || behind.empty())) {
      return {true, at, at + marker.size() + line_end};
    }
    ++searched_;
  }
  if (file_ended_) return {true, text.size(), text.size()};
  searched_ = text.size() - std::min(text.size(), marker.size());
  return {false, searched_, searched_};
}

DocumentReader::Ending DocumentReader::find_ending() {
  if (is_jsonl()) return find_line_end();
  if (!rules_.split_on.empty()) return find_marker_line();
  return {file_ended_, window().size(), window().size()};
}

void DocumentReader::emit(DocumentBatch& batch, const Ending& ending, bool last) {
  const std::string_view text = window().substr(0, ending.text);
  const size_t begin = batch.text.size();
  batch.text += text;
  batch.parts.push_back({begin, batch.text.size(), position_, is_jsonl(), last});
  consume(ending.next);
  position_.inside = !last;
  if (last) ++position_.document;
}

// One part, or nothing where an ending follows at once; closes the file at its end.
void DocumentReader::take_part(DocumentBatch& batch) {
  const bool jsonl = is_jsonl(), whole_file = !jsonl && rules_.split_on.empty();
  for (;;) {
    const Ending ending = find_ending();
    if (!jsonl && ending.text > kBatchBytes) {
      const size_t from = std::max(kBatchBytes, uncuttable_);
      const size_t cut = cutter_.find(window().substr(0, ending.text), from);
      if (cut != TextCutter::kNowhere) return emit(batch, {true, cut, cut}, false);
      uncuttable_ = std::max(from, ending.text - kBatchBytes);  // those may yet become a border
    }
    if (!ending.found) {
      read_more();
      continue;
    }
    const bool skipped = jsonl ? is_blank(window().substr(0, ending.text))
                               : !whole_file && ending.text == 0 && !position_.inside;
    if (skipped) {
      consume(ending.next);
    } else {
      emit(batch, ending, true);
    }
    if (jsonl && ending.next > ending.text) ++position_.line;
    if (file_ended_ && window().empty()) close_file();
    return;
  }
}

bool DocumentReader::next(DocumentBatch& batch) {
  batch.text.clear();
  batch.parts.clear();
  while (batch.text.size() < kBatchBytes && batch.parts.size() < kMostParts) {
    if (descriptor_ < 0) {
      if (position_.file == static_cast<int64_t>(files_.size())) break;
      open_file();
    }
    take_part(batch);
  }
  batch.after = position_;
  if (digest_) batch.after.digest = digest_->hex();
  return !batch.parts.empty();
}

}  // namespace xtrain
