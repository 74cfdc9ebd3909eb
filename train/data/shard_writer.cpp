#include "train/data/shard_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <span>
#include <utility>

#include "core/atomic_file.h"
#include "core/error.h"
#include "train/checksum.h"

namespace xtrain {
namespace {

static_assert(std::endian::native == std::endian::little, "ids are written as they lie in memory");

namespace fs = std::filesystem;

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr size_t kMostShards = 1'000'000;  // six digits
constexpr size_t kHeaderWords = 256;

std::array<int32_t, kHeaderWords> header_of(TokenLayout layout, int64_t tokens) {
  std::array<int32_t, kHeaderWords> header{};
  const bool wide = layout == TokenLayout::llmc_u32;
  header[0] = wide ? 20240801 : 20240520;
  header[1] = wide ? 7 : 1;
  header[2] = static_cast<int32_t>(tokens);
  return header;
}

void check_system(bool holds, const std::string& path, const char* what) {
  const int reason = errno;
  check(holds, path, ": cannot ", what, " the file: ", std::strerror(reason));
}

void write_all(int descriptor, std::span<const char> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    check_system(written >= 0, path, "write");
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

std::string checksum_of_file(int descriptor, const std::string& path) {
  std::vector<std::byte> chunk(kBufferBytes);
  Checksum checksum;
  for (off_t at = 0;;) {
    const ssize_t got = ::pread(descriptor, chunk.data(), chunk.size(), at);
    if (got < 0 && errno == EINTR) continue;
    check_system(got >= 0, path, "read");
    if (got == 0) return checksum.hex();
    checksum.add(std::span(chunk).first(static_cast<size_t>(got)));
    at += got;
  }
}

template <class Id>
void append_ids(std::span<const int32_t> ids, std::vector<char>& out) {
  const size_t before = out.size();
  out.resize(before + ids.size() * sizeof(Id));
  char* const to = out.data() + before;
  for (size_t i = 0; i < ids.size(); ++i) {
    const Id id = static_cast<Id>(ids[i]);
    std::memcpy(to + i * sizeof(Id), &id, sizeof(Id));
  }
}

std::string partial(const std::string& path) {
  return path + ".partial";
}

}  // namespace

std::string_view name_of(TokenLayout layout) {
  switch (layout) {
    case TokenLayout::llmc_u16:
      return "llmc_u16";
    case TokenLayout::llmc_u32:
      return "llmc_u32";
    case TokenLayout::raw_u16:
      return "raw_u16";
  }
  fail("token files: unknown layout");
}

TokenLayout layout_of_name(std::string_view name) {
  for (const auto layout : {TokenLayout::llmc_u16, TokenLayout::llmc_u32, TokenLayout::raw_u16}) {
    if (name == name_of(layout)) return layout;
  }
  reject_input("the format must be llmc_u16, llmc_u32 or raw_u16; got \"", name, '"');
}

int64_t largest_vocabulary(TokenLayout layout) {
  return layout == TokenLayout::llmc_u32 ? int64_t{1} << 31 : int64_t{1} << 16;
}

bool ends_documents(TokenLayout layout) {
  return layout == TokenLayout::raw_u16;
}

ShardWriter::ShardWriter(std::string folder, std::string name, TokenLayout layout,
                         int64_t shard_tokens)
    : folder_(std::move(folder)),
      name_(std::move(name)),
      layout_(layout),
      width_(layout == TokenLayout::llmc_u32 ? 4 : 2),
      header_(layout == TokenLayout::raw_u16 ? 0 : kHeaderWords * sizeof(int32_t)),
      shard_tokens_(layout == TokenLayout::raw_u16 ? INT64_MAX : shard_tokens) {
  check_input(shard_tokens >= 1 && shard_tokens <= INT32_MAX, "tokens of a shard must lie in 1..",
              INT32_MAX, "; got ", shard_tokens);
}

ShardWriter::~ShardWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::string ShardWriter::path(size_t shard) const {
  if (layout_ == TokenLayout::raw_u16) return folder_ + '/' + name_ + ".bin";
  check_input(shard < kMostShards, folder_, ": more than ", kMostShards,
              " shards; give each more tokens");
  std::array<char, 16> number{};
  std::snprintf(number.data(), number.size(), "_%06zu.bin", shard);
  return folder_ + '/' + name_ + number.data();
}

void ShardWriter::open(bool anew) {
  const std::string file = partial(path(state_.finished.size()));
  descriptor_ = ::open(file.c_str(), O_RDWR | O_CLOEXEC | (anew ? O_CREAT | O_TRUNC : 0), 0666);
  check_system(descriptor_ >= 0, file, "create");
  if (!anew) return;
  sync_folder(folder_);
  const auto header = header_of(layout_, 0);
  buffer_.assign(reinterpret_cast<const char*>(header.data()),
                 reinterpret_cast<const char*>(header.data()) + header_);
}

// A shard that was completed after the state had been saved is opened again: what followed the
// state will come once more.
void ShardWriter::restore(State state) {
  state_ = std::move(state);
  if (state_.open_tokens == 0) return;
  const std::string file = path(state_.finished.size());
  std::error_code ignored;
  if (!fs::exists(partial(file), ignored)) {
    check_system(std::rename(file.c_str(), partial(file).c_str()) == 0, file, "go on with");
  }
  open(false);
  const int64_t bytes = header_ + width_ * state_.open_tokens;
  const int64_t found = ::lseek(descriptor_, 0, SEEK_END);
  check_input(found >= bytes, partial(file), ": must have at least ", bytes,
              " bytes to go on with; it has ", found);
  check_system(::ftruncate(descriptor_, bytes) == 0 && ::lseek(descriptor_, bytes, SEEK_SET) >= 0,
               file, "go on with");
}

void ShardWriter::flush() {
  write_all(descriptor_, buffer_, partial(path(state_.finished.size())));
  buffer_.clear();
}

void ShardWriter::close_shard() {
  flush();
  const std::string file = path(state_.finished.size());
  if (header_ > 0) {
    const auto header = header_of(layout_, state_.open_tokens);
    check_system(::pwrite(descriptor_, header.data(), sizeof header, 0) ==
                     static_cast<ssize_t>(sizeof header),
                 partial(file), "write");
  }
  check_system(::fsync(descriptor_) == 0, partial(file), "force to disk");
  const std::string hash = checksum_of_file(descriptor_, partial(file));
  check_system(::close(std::exchange(descriptor_, -1)) == 0, partial(file), "close");
  check_system(std::rename(partial(file).c_str(), file.c_str()) == 0, file, "rename to");
  sync_folder(folder_);
  state_.finished.push_back({fs::path(file).filename().string(), state_.open_tokens, hash});
  state_.open_tokens = 0;
}

void ShardWriter::add(std::span<const int32_t> ids) {
  while (!ids.empty()) {
    if (descriptor_ < 0) open(true);
    const auto count = static_cast<size_t>(
        std::min<int64_t>(static_cast<int64_t>(std::min(ids.size(), kBufferBytes)),
                          shard_tokens_ - state_.open_tokens));
    if (width_ == 2) {
      append_ids<uint16_t>(ids.first(count), buffer_);
    } else {
      append_ids<uint32_t>(ids.first(count), buffer_);
    }
    ids = ids.subspan(count);
    state_.open_tokens += static_cast<int64_t>(count);
    if (state_.open_tokens == shard_tokens_) {
      close_shard();
    } else if (buffer_.size() >= kBufferBytes) {
      flush();
    }
  }
}

const ShardWriter::State& ShardWriter::save() {
  if (descriptor_ >= 0) {
    flush();
    check_system(::fsync(descriptor_) == 0, partial(path(state_.finished.size())), "force to disk");
  }
  return state_;
}

const ShardWriter::State& ShardWriter::finish() {
  if (descriptor_ >= 0) close_shard();
  return state_;
}

}  // namespace xtrain
