#include "train/data/shard_writer.h"

#include <sys/stat.h>

#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "core/mapped_file.h"
#include "support/catch.h"
#include "support/rejection.h"
#include "support/temporary_folder.h"
#include "train/checksum.h"
#include "train/data/token_bytes.h"
#include "train/data/token_file.h"

namespace xtrain {
namespace {

// Written out by hand, after llm.c's data_common.py.
std::string llmc_header(std::string_view magic_and_version, std::string_view count) {
  return std::string(magic_and_version) + std::string(count) + std::string(1024 - 12, '\0');
}

std::string bytes(std::initializer_list<int> values) {
  std::string out;
  for (const int value : values) out += static_cast<char>(value);
  return out;
}

std::vector<int32_t> ids(int32_t count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

std::string hash_of(const std::string& content) {
  return checksum_of(std::as_bytes(std::span<const char>(content)));
}

TEST_CASE("shard_writer: llm.c's shards of uint16 ids, byte for byte") {
  const TemporaryFolder folder;
  ShardWriter writer(folder.path.string(), "x_train", TokenLayout::llmc_u16, 3);
  writer.add(std::vector<int32_t>{50256, 1});
  writer.add(std::vector<int32_t>{65535, 258});
  const auto state = writer.finish();
  const std::string magic = bytes({0x88, 0xD8, 0x34, 0x01, 1, 0, 0, 0});
  const std::string first =
      llmc_header(magic, bytes({3, 0, 0, 0})) + bytes({0x50, 0xC4, 1, 0, 0xFF, 0xFF});
  const std::string second = llmc_header(magic, bytes({1, 0, 0, 0})) + bytes({2, 1});
  CHECK(folder.read("x_train_000000.bin") == first);
  CHECK(folder.read("x_train_000001.bin") == second);
  REQUIRE(state.finished.size() == 2);
  CHECK(state.finished[0].file == "x_train_000000.bin");
  CHECK(state.finished[0].tokens == 3);
  CHECK(state.finished[0].hash == hash_of(first));
  CHECK(state.finished[1].tokens == 1);
  CHECK(state.finished[1].hash == hash_of(second));
}

TEST_CASE("shard_writer: llm.c's shards of uint32 ids and nanoGPT's file, byte for byte") {
  const TemporaryFolder folder;
  ShardWriter wide(folder.path.string(), "x_val", TokenLayout::llmc_u32, 100);
  wide.add(std::vector<int32_t>{128000, 7});
  wide.finish();
  CHECK(folder.read("x_val_000000.bin") ==
        llmc_header(bytes({0xA1, 0xD9, 0x34, 0x01, 7, 0, 0, 0}), bytes({2, 0, 0, 0})) +
            bytes({0x00, 0xF4, 1, 0, 7, 0, 0, 0}));
  ShardWriter raw(folder.path.string(), "val", TokenLayout::raw_u16, 1);
  raw.add(std::vector<int32_t>{1, 256, 50256});
  raw.finish();
  CHECK(folder.read("val.bin") == bytes({1, 0, 0, 1, 0x50, 0xC4}));
}

TEST_CASE("shard_writer: what it writes is what token files are read as") {
  const TemporaryFolder folder;
  const auto written = ids(1'300'000);
  for (const auto layout : {TokenLayout::llmc_u32, TokenLayout::llmc_u16, TokenLayout::raw_u16}) {
    const int32_t largest = layout == TokenLayout::llmc_u32 ? INT32_MAX : 65535;
    std::vector<int32_t> some;
    for (const int32_t id : written) some.push_back(id & largest);
    ShardWriter writer(folder.path.string(), "x", layout, 500'000);
    writer.add(std::span(some).first(700'001));
    writer.add(std::span(some).subspan(700'001));
    std::vector<int32_t> read;
    for (const FinishedShard& shard : writer.finish().finished) {
      const TokenFile file(MappedFile(folder.file(shard.file)), "auto", 1'300'000);
      CHECK(file.size() == shard.tokens);
      read.resize(read.size() + static_cast<size_t>(file.size()));
      file.read(0, std::span(read).last(static_cast<size_t>(file.size())));
    }
    CHECK(read == some);
  }
}

TEST_CASE("shard_writer: a file bears its name only when it is complete") {
  const TemporaryFolder folder;
  {
    ShardWriter writer(folder.path.string(), "x", TokenLayout::llmc_u16, 10);
    writer.add(ids(9));
    writer.save();
    CHECK(folder.read("x_000000.bin.partial").size() == 1024 + 18);
    CHECK_FALSE(std::filesystem::exists(folder.file("x_000000.bin")));
    writer.add(ids(1));
    CHECK(std::filesystem::exists(folder.file("x_000000.bin")));
    writer.finish();
  }
  ShardWriter nothing(folder.path.string(), "none", TokenLayout::llmc_u16, 10);
  CHECK(nothing.finish().finished.empty());
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);
}

TEST_CASE("shard_writer: whatever was written behind a saved state comes again") {
  const auto all = ids(1000);
  for (const auto layout : {TokenLayout::llmc_u16, TokenLayout::raw_u16}) {
    for (const size_t saved : {0, 299, 300, 650}) {
      for (const size_t lost : {0, 1, 120, 350}) {
        const TemporaryFolder whole, broken;
        ShardWriter unbroken(whole.path.string(), "x", layout, 300);
        unbroken.add(all);
        unbroken.finish();
        ShardWriter::State state;
        {
          ShardWriter first(broken.path.string(), "x", layout, 300);
          first.add(std::span(all).first(saved));
          state = first.save();
          first.add(std::span(all).subspan(saved, std::min(lost, all.size() - saved)));
          if (lost == 350) first.finish();
        }
        ShardWriter second(broken.path.string(), "x", layout, 300);
        second.restore(state);
        second.add(std::span(all).subspan(saved));
        for (const FinishedShard& shard : second.finish().finished) {
          CHECK(broken.read(shard.file) == whole.read(shard.file));
          CHECK(shard.hash == hash_of(whole.read(shard.file)));
        }
        const auto files = [](const TemporaryFolder& folder) {
          return std::distance(std::filesystem::directory_iterator(folder.path), {});
        };
        CHECK(files(broken) == files(whole));
      }
    }
  }
}

TEST_CASE("shard_writer: bad sizes and lost files are refused") {
  const TemporaryFolder folder;
  const auto why = [&](int64_t shard_tokens) {
    return rejection(
        [&] { ShardWriter(folder.path.string(), "x", TokenLayout::llmc_u16, shard_tokens); });
  };
  CHECK(why(0) == "tokens of a shard must lie in 1..2147483647; got 0");
  CHECK(why(int64_t{1} << 31) == "tokens of a shard must lie in 1..2147483647; got 2147483648");
  ShardWriter writer(folder.path.string(), "x", TokenLayout::llmc_u16, 100);
  CHECK_THROWS_WITH(writer.restore({{}, 5}), folder.file("x_000000.bin") +
                                                 ": cannot go on with the file: No such file or "
                                                 "directory");
  folder.write("x_000000.bin.partial", std::string(1030, '\0'));
  CHECK(rejection([&] {
          ShardWriter(folder.path.string(), "x", TokenLayout::llmc_u16, 100).restore({{}, 5});
        }) == folder.file("x_000000.bin.partial") +
                  ": must have at least 1034 bytes to go on with; it has 1030");
  CHECK(rejection([] { layout_of_name("u16"); }) ==
        "the format must be llmc_u16, llmc_u32 or raw_u16; got \"u16\"");
}

}  // namespace
}  // namespace xtrain
