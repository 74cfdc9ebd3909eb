#include "train/data/open_data.h"

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/rejection.h"
#include "support/temporary_folder.h"
#include "train/data/token_bytes.h"

namespace xtrain {
namespace {

std::string content(const Data& data, const TokenSource& source) {
  std::vector<int32_t> ids(static_cast<size_t>(source.size()));
  source.read(0, ids);
  return data.vocabulary->decode(ids);
}

DataConfig with_files(std::vector<std::string> files) {
  DataConfig config;
  config.train_files = std::move(files);
  return config;
}

TEST_CASE("data: without files there are stories, others for validation") {
  DataConfig config;
  config.stories_count = 30;
  const Data data = open_data(config, 256);
  CHECK(data.train->reader() == "built-in stories, bytes as tokens");
  CHECK(data.train->name() == "stories 0..29 of seed 1");
  CHECK(data.validation->name() == "stories 1099511627776..1099511627778 of seed 1");
  CHECK(data.train->entropy_floor().has_value());
  CHECK(data.vocabulary->size() == 256);
  const std::string training = content(data, *data.train);
  const std::string first_story = content(data, *data.validation).substr(0, 300);
  CHECK(training.find(first_story) == std::string::npos);
  config.stories_count = 25;  // a smaller training part has the same stories
  const Data fewer = open_data(config, 0);
  CHECK(training.starts_with(content(fewer, *fewer.train)));
  CHECK(content(fewer, *fewer.validation) == content(data, *data.validation));
}

TEST_CASE("data: text is bytes, and its last tenth is held out") {
  const TemporaryFolder folder;
  const Data data = open_data(with_files({folder.write("a.txt",
                                                       "0123456789\xFF"
                                                       "bcdefgh\r\n")}),
                              0);
  CHECK(data.train->reader() == "text, bytes as tokens");
  CHECK(content(data, *data.train) ==
        "0123456789\xFF"
        "bcdefgh");
  CHECK(content(data, *data.validation) == "\r\n");
  CHECK_FALSE(data.train->entropy_floor().has_value());
}

TEST_CASE("data: characters count as tokens, and the cut is at int(n * 0.9) of them") {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 1009; ++i) text += "\u00e9";
  DataConfig config = with_files({folder.write("a.txt", text + "abcdef")});
  config.source = "chars";
  const Data data = open_data(config, 65);
  CHECK(data.train->size() == 913);  // int(1015 * 0.9) = int(913.5)
  CHECK(data.validation->size() == 102);
  CHECK(data.vocabulary->size() == 7);
}

TEST_CASE("data: a saved vocabulary gives the same ids to other text") {
  const TemporaryFolder folder;
  DataConfig config = with_files({folder.write("a.txt", "hello world")});
  config.source = "chars";
  const std::string saved = folder.write("v.json", open_data(config, 0).vocabulary->to_json());
  config = with_files({folder.write("b.txt", "lord hell wood")});
  config.vocab_file = saved;
  config.val_fraction = 0;
  const Data data = open_data(config, 0);
  CHECK(data.train->reader() == "text, characters as tokens");
  CHECK(data.vocabulary->size() == 8);
  CHECK(content(data, *data.train) == "lord hell wood");
  CHECK(data.validation == nullptr);
  config.train_files = {folder.write("c.txt", "hello you")};
  CHECK(rejection([&] { open_data(config, 0); }) ==
        config.train_files[0] +
            ": the character \"y\" at byte 6 is not one of the 8 in the vocabulary");
}

TEST_CASE("data: patterns expand in order of name, and the files form one stream") {
  const TemporaryFolder folder;
  folder.write("b.txt", "BBB");
  folder.write("a.txt", "AA");
  folder.write("c.txt", "C");
  DataConfig config = with_files({folder.file("[bc].txt"), folder.file("a.*")});
  config.val_files = {folder.file("c.txt")};
  const Data data = open_data(config, 0);
  CHECK(content(data, *data.train) == "BBBCAA");
  CHECK(data.train->name() ==
        "3 files (" + folder.file("b.txt") + " ... " + folder.file("a.txt") + ")");
  CHECK(content(data, *data.validation) == "C");
  std::vector<int32_t> middle(3);
  data.train->read(2, middle);
  CHECK(data.vocabulary->decode(middle) == "BCA");
  CHECK_THROWS_AS(data.train->read(4, middle), Error);
  std::string sorted;
  for (char c = 'z'; c >= 'a'; --c) folder.write(std::string(1, c) + ".part", std::string(1, c));
  for (char c = 'a'; c <= 'z'; ++c) sorted += c;
  config = with_files({folder.file("*.part")});
  config.val_fraction = 0;
  const Data parts = open_data(config, 0);
  CHECK(content(parts, *parts.train) == sorted);
}

TEST_CASE("data: token files are not split unless asked to") {
  const TemporaryFolder folder;
  DataConfig config = with_files({folder.write("t.bin", packed(counting<uint16_t>(65, 65)))});
  CHECK(open_data(config, 65).train->size() == 65);
  CHECK(open_data(config, 65).validation == nullptr);
  config.val_fraction = 0.2;
  const Data data = open_data(config, 65);
  CHECK(data.train->size() == 52);
  CHECK(data.validation->size() == 13);
  CHECK(data.validation->name() == config.train_files[0] + " (its part from token 52 to token 65)");
  CHECK(content(data, *data.validation).starts_with("52 53 "));
}

TEST_CASE("data: files that cannot be read are rejected by name") {
  const TemporaryFolder folder;
  const auto why = [](const std::string& path) {
    return rejection([&] { open_data(with_files({path}), 0); });
  };
  CHECK(why(folder.file("none.txt")) ==
        folder.file("none.txt") + ": cannot be opened: No such file or directory");
  CHECK(why(folder.file("*.bin")) ==
        folder.file("*.bin") + ": cannot be opened: No such file or directory");
  CHECK(why(folder.path.string()) ==
        folder.path.string() + ": is a directory; name the files in it");
  REQUIRE(mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  CHECK(why(folder.file("pipe")) == folder.file("pipe") + ": must be a regular file");
}

TEST_CASE("data: settings that do not fit together are rejected") {
  const TemporaryFolder folder;
  const std::string text = folder.write("a.txt", "hello"), empty = folder.write("empty.txt", "");
  const std::string tokens = folder.write("t.bin", packed(counting<uint16_t>(10, 10)));
  const auto why = [](const DataConfig& config, int64_t vocab_size = 0) {
    return rejection([&] { open_data(config, vocab_size); });
  };
  CHECK(why(with_files({text, tokens}), 256) == "data files must be all text or all tokens; " +
                                                    text + " is text, " + tokens + " is tokens");
  CHECK(why(with_files({text, empty})) == empty + ": holds no tokens; remove it from the list");
  CHECK(why(with_files({tokens})) == tokens +
                                         ": token files do not say how large their vocabulary " +
                                         "is; give the model's vocab_size or a data.vocab_file");
  CHECK(why(with_files({text}), 255) ==
        "the model's vocab_size must be at least that of the data, 256 (bytes); got 255");
  DataConfig config = with_files({text});
  config.val_fraction = 1;
  CHECK(why(config) == "data.val_fraction must lie in [0, 1), or be -1 for the default; got 1");
  config = with_files({text});
  config.source = "poems";
  CHECK(why(config) == "data.source must be auto, stories, text, chars or tokens; got \"poems\"");
  config.source = "stories";
  CHECK(why(config).starts_with("data.source \"stories\" reads no files"));
  config = with_files({});
  config.source = "text";
  CHECK(why(config) == "data.source \"text\" needs files; data.train_files is empty");
  config = with_files({text});
  config.source = "text";
  config.format = "raw_u16";
  CHECK(why(config) == "data.format applies to token files; data.source is \"text\"");
  config = {};
  config.stories_count = 0;
  CHECK(why(config) == "stories: their number must lie in 1..4294967296; got 0");
}

}  // namespace
}  // namespace xtrain
