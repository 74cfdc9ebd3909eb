#include "train/data/count_documents.h"

#include <string>

#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/data/small_tokenizers.h"

namespace xtrain {
namespace {

TEST_CASE("count_documents: pieces, their order and counts are those of one text after another") {
  const TemporaryFolder folder;
  const std::string a = mixed_text(1'000'000, 1), b = mixed_text(300'000, 2);
  const std::string line = "{\"text\": \"of a line\"}\n";
  const auto files = list_input_files(
      {folder.write("a", a), folder.write("b.jsonl", line + line), folder.write("c", b)});
  const std::atomic<bool> stop{false};
  for (const std::string_view pattern : {kGpt2Pattern, kQwen2Pattern}) {
    PieceCounts expected{PreTokenizer(pattern)};
    for (const std::string& text : {a, std::string("of a line"), std::string("of a line"), b}) {
      expected.add(text);
    }
    for (const int threads : {1, 3}) {
      const PieceCounts counts = count_documents(files, {}, PreTokenizer(pattern), threads, stop,
                                                 [](const ReadPosition&) {});
      CHECK(counts.pieces() == expected.pieces());
      CHECK(counts.counts() == expected.counts());
    }
  }
}

}  // namespace
}  // namespace xtrain
