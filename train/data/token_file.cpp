#include "train/data/token_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "ops/cross_entropy/cross_entropy.h"

namespace xtrain {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are read as they lie");

using Layout = TokenFile::Layout;

constexpr int64_t kHeaderBytes = 1024;
constexpr std::string_view kLlmqMagic = "BIN.TOK\n";

template <class T>
T load(const MappedFile& file, int64_t offset) {
  T value;
  std::memcpy(&value, file.data() + offset, sizeof(T));
  return value;
}

bool has_llmq_magic(const MappedFile& file) {
  return file.text().starts_with(kLlmqMagic);
}

// llm.c numbers its file kinds by date: tokens 20240520, models 20240326, and so on. Read as two
// uint16 ids such a number begins with one above GPT-2's vocabulary, so it is not raw data.
bool has_llmc_magic(const MappedFile& file) {
  return file.size() >= 4 && load<int32_t>(file, 0) / 10000 == 2024;
}

}  // namespace

bool has_token_header(const MappedFile& file) {
  return has_llmq_magic(file) || has_llmc_magic(file);
}

bool looks_like_tokens(const MappedFile& file) {
  return has_token_header(file) || file.path().ends_with(".bin");
}

namespace {

Layout llmc_layout(const MappedFile& file) {
  const auto magic = load<int32_t>(file, 0), version = load<int32_t>(file, 4);
  const bool wide = magic == 20240801;
  check_input(wide || magic == 20240520, file.path(),
              ": must begin with magic 20240520 (uint16 ids) or 20240801 (uint32 ids); found ",
              magic, ", another kind of file");
  const int32_t expected = wide ? 7 : 1;
  check_input(version == expected, file.path(), ": magic ", magic, " must have version ", expected,
              "; found ", version);
  const int64_t count = load<int32_t>(file, 8);
  return wide
             ? Layout{"tokens, headered uint32 (magic 20240801, version 7)", kHeaderBytes, 4, count}
             : Layout{"tokens, headered uint16 (magic 20240520, version 1)", kHeaderBytes, 2,
                      count};
}

// Writers that know nothing of a field leave it as they filled the header, with asterisks.
constexpr int32_t kUnwritten = 0x2A2A2A2A;

Layout llmq_layout(const MappedFile& file) {
  const auto version = load<int32_t>(file, 8), width = load<int32_t>(file, 12);
  const auto vocab_size = load<int32_t>(file, 20), masked = load<int32_t>(file, 24);
  check_input(version == 1 || version == 2, file.path(),
              ": BIN.TOK must have version 1 or 2; found ", version);
  check_input(width == 4, file.path(), ": BIN.TOK must have 4 bytes per id; found ", width);
  check_input(version == 1 || vocab_size > 0, file.path(),
              ": BIN.TOK of version 2 must have a vocabulary size above 0; found ", vocab_size);
  check_input(masked == 0 || masked == 1 || masked == kUnwritten, file.path(),
              ": BIN.TOK must say 0 or 1 for whether it has masks; found ", masked);
  return {masked == 1 ? "tokens, headered int32 with masks (BIN.TOK)"
                      : "tokens, headered int32 (BIN.TOK)",
          kHeaderBytes,
          4,
          load<int32_t>(file, 16),
          masked == 1,
          version == 1 ? 0 : vocab_size};
}

Layout headered_layout(const MappedFile& file) {
  check_input(has_token_header(file), file.path(),
              ": a headered token file must begin with magic 20240520, 20240801 or BIN.TOK; found ",
              file.size() < 4 ? "no magic" : text(load<int32_t>(file, 0)),
              " (use format \"raw_u16\" for a file without header)");
  check_input(file.size() >= kHeaderBytes, file.path(), ": the header must have ", kHeaderBytes,
              " bytes; found ", file.size());
  const Layout layout = has_llmq_magic(file) ? llmq_layout(file) : llmc_layout(file);
  const int64_t expected = layout.file_bytes();
  if (layout.count >= 0 && file.size() == expected) return layout;
  const std::string tokens = text((file.size() - layout.header) / layout.width, " tokens");
  reject_input(file.path(), ": the header says ", layout.count, " tokens",
               layout.masked ? " with masks" : "", ", so the file must have ", expected,
               " bytes; found ", file.size(), layout.masked ? "" : " (" + tokens + ")");
}

Layout raw_layout(const MappedFile& file) {
  check_input(!has_token_header(file), file.path(),
              ": raw uint16 tokens were expected; found the magic number of a headered file (use ",
              "format \"headered\" or \"auto\")");
  check_input(file.size() % 2 == 0, file.path(),
              ": raw uint16 tokens need an even number of bytes; found ", file.size());
  return {"tokens, raw uint16", 0, 2, file.size() / 2};
}

Layout layout_of(const MappedFile& file, std::string_view format) {
  if (format == "raw_u16") return raw_layout(file);
  if (format == "headered") return headered_layout(file);
  check_input(format == "auto", "data.format must be auto, raw_u16 or headered; got \"", format,
              "\"");
  return has_token_header(file) ? headered_layout(file) : raw_layout(file);
}

// Widens ids and returns the largest. An int32 id below 0 is one above 2^31 here.
template <class Id>
uint32_t copy_ids(const char* from, std::span<int32_t> out) {
  uint32_t largest = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    Id id;
    std::memcpy(&id, from + i * sizeof(Id), sizeof(Id));
    out[i] = static_cast<int32_t>(id);
    largest = std::max<uint32_t>(largest, id);
  }
  return largest;
}

}  // namespace

int64_t header_vocab_size(const MappedFile& file) {
  return has_llmq_magic(file) ? headered_layout(file).vocab_size : 0;
}

TokenFile::TokenFile(MappedFile file, std::string_view format, int64_t vocab_size)
    : file_(std::move(file)), layout_(layout_of(file_, format)), vocab_size_(vocab_size) {
  check_input(
      vocab_size > 0 && vocab_size <= INT32_MAX, file_.path(),
      ": token files do not say what their ids mean; the model's vocab_size must be given (",
      "got ", vocab_size, ")");
  check_input(layout_.vocab_size <= vocab_size, file_.path(), ": its ids are of a vocabulary of ",
              layout_.vocab_size, "; the vocabulary in use has ", vocab_size);
}

void TokenFile::read(int64_t offset, std::span<int32_t> out) const {
  check_range(*this, offset, static_cast<int64_t>(out.size()));
  const char* from = file_.data() + layout_.header + offset * layout_.width;
  const uint32_t largest =
      layout_.width == 2 ? copy_ids<uint16_t>(from, out) : copy_ids<uint32_t>(from, out);
  if (out.empty() || largest < vocab_size_) return;
  const auto bad = std::find_if(
      out.begin(), out.end(), [&](int32_t id) { return static_cast<uint32_t>(id) >= vocab_size_; });
  reject_input(file_.path(), ": token ", offset + (bad - out.begin()), " has id ",
               static_cast<uint32_t>(*bad), "; ids must lie in 0..", vocab_size_ - 1,
               " (vocab_size ", vocab_size_, ")");
}

void TokenFile::mask_targets(int64_t offset, std::span<int32_t> targets) const {
  check_range(*this, offset, static_cast<int64_t>(targets.size()));
  if (!layout_.masked) return;
  const char* masks = file_.data() + layout_.masks_at();
  for (size_t i = 0; i < targets.size(); ++i) {
    const int64_t bit = offset + static_cast<int64_t>(i);
    const bool counts = (masks[bit / 8] >> (bit % 8)) & 1;
    if (!counts) targets[i] = kIgnoreIndex;
  }
}

}  // namespace xtrain
