#include "train/data/token_file.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/rejection.h"
#include "support/temporary_folder.h"
#include "train/data/open_data.h"
#include "train/data/token_bytes.h"
#include "train/data/windows.h"

namespace xtrain {
namespace {

std::vector<int32_t> tokens_of(const TokenSource& source) {
  std::vector<int32_t> all(static_cast<size_t>(source.size()));
  source.read(0, all);
  return all;
}

std::string rejected(const std::string& path, const std::string& format) {
  return rejection([&] { TokenFile(MappedFile(path), format, 50257); });
}

TEST_CASE("token files: each layout is recognised and named") {
  const TemporaryFolder folder;
  const std::vector<int32_t> ids{5, 0, 50256, 7};
  const std::string narrow = packed(std::vector<uint16_t>{5, 0, 50256, 7});
  const std::string wide = packed(ids);
  struct Case {
    std::string file, bytes, reader;
  };
  for (const Case& c :
       {Case{"raw.bin", narrow, "tokens, raw uint16"},
        Case{"gpt2.bin", header(20240520, 1, 4) + narrow,
             "tokens, headered uint16 (magic 20240520, version 1)"},
        Case{"llama.dat", header(20240801, 7, 4) + wide,
             "tokens, headered uint32 (magic 20240801, version 7)"},
        Case{"llmq.bin", llmq_header({2, 4, 4, 50257, 0}) + wide,
             "tokens, headered int32 (BIN.TOK)"},
        Case{"first.bin", llmq_header({1, 4, 4}) + wide, "tokens, headered int32 (BIN.TOK)"},
        Case{"older.bin", llmq_header({2, 4, 4, 50257}) + wide, "tokens, headered int32 (BIN.TOK)"},
        Case{"masked.bin", llmq_header({2, 4, 4, 50257, 1}) + wide + '\x05',
             "tokens, headered int32 with masks (BIN.TOK)"}}) {
    const std::string path = folder.write(c.file, c.bytes);
    CHECK(looks_like_tokens(MappedFile(path)));
    const TokenFile source(MappedFile(path), "auto", 50257);
    CHECK(source.reader() == c.reader);
    CHECK(tokens_of(source) == ids);
  }
  CHECK_FALSE(looks_like_tokens(MappedFile(folder.write("a.txt", "2024 was a year"))));
  CHECK_FALSE(looks_like_tokens(MappedFile(folder.write("b.txt", ""))));
}

TEST_CASE("token files: the header is not data") {
  const TemporaryFolder folder;
  const std::string path =
      folder.write("t.bin", header(20240520, 1, 257) + packed(counting<uint16_t>(257, 256)));
  const auto source = std::make_shared<TokenFile>(MappedFile(path), "auto", 256);
  CHECK(source->size() == 257);
  CHECK(ShuffledWindows(source, 64, 1).windows_per_epoch() == 2 * 2);  // two batches of two
}

TEST_CASE("token files: a wrong magic, version or size is rejected with expected and found") {
  const TemporaryFolder folder;
  const std::string ids = packed(counting<uint16_t>(900, 256));
  const std::string cut = folder.write("cut.bin", header(20240520, 1, 1000) + ids);
  CHECK(rejected(cut, "auto") == cut +
                                     ": the header says 1000 tokens, so the file must have 3024 "
                                     "bytes; found 2824 (900 tokens)");
  const std::string longer = folder.write("longer.bin", header(20240520, 1, 899) + ids);
  CHECK(rejected(longer, "auto") ==
        longer +
            ": the header says 899 tokens, so the file must have 2822 bytes; found 2824 (900 "
            "tokens)");
  const std::string negative = folder.write("negative.bin", header(20240520, 1, -1) + ids);
  CHECK(rejected(negative, "auto") == negative +
                                          ": the header says -1 tokens, so the file must have "
                                          "1022 bytes; found 2824 (900 tokens)");
  const std::string raw = folder.write("raw.bin", ids);
  CHECK(rejected(raw, "headered") ==
        raw +
            ": a headered token file must begin with magic 20240520, 20240801 or BIN.TOK; found "
            "65536 (use format \"raw_u16\" for a file without header)");
  const std::string good = folder.write("good.bin", header(20240520, 1, 900) + ids);
  CHECK(rejected(good, "raw_u16") ==
        good +
            ": raw uint16 tokens were expected; found the magic number of a headered file (use "
            "format \"headered\" or \"auto\")");
  const std::string version = folder.write("version.bin", header(20240520, 2, 900) + ids);
  CHECK(rejected(version, "auto") == version + ": magic 20240520 must have version 1; found 2");
  const std::string wide = folder.write("wide.bin", header(20240801, 1, 450) + ids);
  CHECK(rejected(wide, "auto") == wide + ": magic 20240801 must have version 7; found 1");
  const std::string model = folder.write("model.bin", header(20240326, 3, 900) + ids);
  CHECK(rejected(model, "auto") == model +
                                       ": must begin with magic 20240520 (uint16 ids) or 20240801 "
                                       "(uint32 ids); found 20240326, another kind of file");
  const std::string stub = folder.write("stub.bin", header(20240520, 1, 900).substr(0, 500));
  CHECK(rejected(stub, "auto") == stub + ": the header must have 1024 bytes; found 500");
  const std::string odd = folder.write("odd.bin", std::string(2001, 'a'));
  CHECK(rejected(odd, "auto") ==
        odd + ": raw uint16 tokens need an even number of bytes; found 2001");
  CHECK(rejected(raw, "u16") == "data.format must be auto, raw_u16 or headered; got \"u16\"");
}

TEST_CASE("token files: a BIN.TOK whose fields do not fit is rejected with expected and found") {
  const TemporaryFolder folder;
  const std::string ids = packed(counting<int32_t>(9, 256));
  const auto why = [&](const std::vector<int32_t>& fields, const std::string& data) {
    const std::string path = folder.write("t.bin", llmq_header(fields) + data);
    const std::string message = rejected(path, "auto");
    return message.starts_with(path + ": ") ? message.substr(path.size() + 2) : message;
  };
  CHECK(why({3, 4, 9, 256, 0}, ids) == "BIN.TOK must have version 1 or 2; found 3");
  CHECK(why({2, 2, 9, 256, 0}, ids) == "BIN.TOK must have 4 bytes per id; found 2");
  CHECK(why({2, 4, 9, 0, 0}, ids) ==
        "BIN.TOK of version 2 must have a vocabulary size above 0; found 0");
  CHECK(why({2, 4, 9, 256, 2}, ids) == "BIN.TOK must say 0 or 1 for whether it has masks; found 2");
  CHECK(why({2, 4, 9, 50258, 0}, ids) ==
        "its ids are of a vocabulary of 50258; the vocabulary in use has 50257");
  CHECK(why({2, 4, 9, 50257, 0}, ids) == "accepted");
  CHECK(why({2, 4, 10, 256, 0}, ids) ==
        "the header says 10 tokens, so the file must have 1064 bytes; found 1060 (9 tokens)");
  CHECK(why({2, 4, 9, 256, 1}, ids) ==
        "the header says 9 tokens with masks, so the file must have 1062 bytes; found 1060");
  CHECK(why({2, 4, 9, 256, 1}, ids + "abc") ==
        "the header says 9 tokens with masks, so the file must have 1062 bytes; found 1063");
  CHECK(why({2, 4, -9, 256, 1}, ids).starts_with("the header says -9 tokens with masks"));
  CHECK(why({2, 4, 9, 256, 1}, ids + "ab") == "accepted");
}

TEST_CASE("token files: masked ids are read, and are no targets") {
  const TemporaryFolder folder;
  const std::vector<bool> counts{false, true, true, false, false, true, false, true, true, false};
  const std::string path =
      folder.write("t.bin", llmq_header({2, 4, 10, 256, 1}) + packed(counting<int32_t>(10, 256)) +
                                packed_bits(counts));
  const TokenFile source(MappedFile(path), "auto", 256);
  std::vector<int32_t> targets(10), part(4);
  source.read(0, targets);
  CHECK(targets == counting<int32_t>(10, 10));
  source.mask_targets(0, targets);
  CHECK(targets == std::vector<int32_t>{-100, 1, 2, -100, -100, 5, -100, 7, 8, -100});
  source.read(6, part);
  source.mask_targets(6, part);
  CHECK(part == std::vector<int32_t>{-100, 7, 8, -100});
  CHECK_THROWS_AS(source.mask_targets(7, part), Error);
}

TEST_CASE("token files: ids outside the vocabulary are rejected with file, offset and id") {
  const TemporaryFolder folder;
  const auto with_id = [&](const char* name, uint16_t id) {
    std::vector<uint16_t> ids = counting<uint16_t>(1000, 200);
    ids[500] = id;
    return folder.write(name, packed(ids));
  };
  DataConfig config;
  config.train_files = {with_id("a.bin", 300)};
  CHECK(rejection([&] { open_data(config, 256); }) ==
        config.train_files[0] + ": token 500 has id 300; ids must lie in 0..255 (vocab_size 256)");
  config.train_files = {with_id("b.bin", 256)};
  CHECK(rejection([&] { open_data(config, 256); }) ==
        config.train_files[0] + ": token 500 has id 256; ids must lie in 0..255 (vocab_size 256)");
  config.train_files = {with_id("c.bin", 255)};
  CHECK(open_data(config, 256).train->size() == 1000);

  std::vector<uint32_t> wide{1, 2, 4000000000u, 3};
  const std::string path = folder.write("wide.bin", header(20240801, 7, 4) + packed(wide));
  const TokenFile source(MappedFile(path), "auto", 128256);
  std::vector<int32_t> out(2);
  source.read(0, out);
  CHECK(out == std::vector<int32_t>{1, 2});
  CHECK(rejection([&] { source.read(1, out); }) ==
        path + ": token 2 has id 4000000000; ids must lie in 0..128255 (vocab_size 128256)");
}

TEST_CASE("token files: offsets beyond 4 GiB") {
  const TemporaryFolder folder;
  const std::string path = folder.write("big.bin", "");
  const int64_t tokens = (int64_t{1} << 31) + 1000;  // sparse: takes no room on the disk
  std::filesystem::resize_file(path, static_cast<uintmax_t>(2 * tokens));
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(2 * (tokens - 2));
    file << packed(std::vector<uint16_t>{17, 18});
  }
  const TokenFile source(MappedFile(path), "raw_u16", 256);
  REQUIRE(source.size() == tokens);
  std::vector<int32_t> out(3);
  source.read(tokens - 3, out);
  CHECK(out == std::vector<int32_t>{0, 17, 18});
  CHECK_THROWS_AS(source.read(tokens - 2, out), Error);
}

TEST_CASE("token files: uint32 ids beyond 4 GiB behind a header") {
  const TemporaryFolder folder;
  const int64_t tokens = (int64_t{1} << 30) + 1000;
  const std::string path =
      folder.write("big.bin", header(20240801, 7, static_cast<int32_t>(tokens)));
  std::filesystem::resize_file(path, static_cast<uintmax_t>(1024 + 4 * tokens));
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(1024 + 4 * (tokens - 2));
    file << packed(std::vector<uint32_t>{128000, 17});
  }
  const TokenFile source(MappedFile(path), "auto", 128256);
  REQUIRE(source.size() == tokens);
  std::vector<int32_t> out(3);
  source.read(tokens - 3, out);
  CHECK(out == std::vector<int32_t>{0, 128000, 17});
}

TEST_CASE("token files: reading outside the file is an error") {
  const TemporaryFolder folder;
  const std::string path = folder.write("t.bin", packed(counting<uint16_t>(10, 10)));
  const TokenFile source(MappedFile(path), "auto", 10);
  std::vector<int32_t> out(3);
  CHECK_THROWS_WITH(source.read(8, out), path + ": tokens 8..10 were asked for; it holds 10");
  CHECK_THROWS_AS(source.read(-1, out), Error);
}

}  // namespace
}  // namespace xtrain
