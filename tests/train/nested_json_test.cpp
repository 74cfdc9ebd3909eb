// Files of JSON whose lists lie in one another without end, at every place that reads any.

#include <filesystem>
#include <string>

#include "support/catch.h"
#include "support/rejection.h"
#include "support/temporary_folder.h"
#include "train/checkpoint.h"
#include "train/data/token_folder.h"
#include "train/data/token_meta.h"
#include "train/data/tokenizer_file.h"
#include "train/data/vocabulary.h"
#include "train/eval/multiple_choice_file.h"
#include "train/generate/generation_config.h"

using namespace xtrain;

TEST_CASE("JSON that is nested without end is refused wherever a file is read", "[json]") {
  const std::string deep = std::string(300'000, '[') + std::string(300'000, ']');
  const TemporaryFolder folder;
  const auto refuses = [](const std::string& file, auto&& read) {
    const std::string said = rejection(read);
    INFO(said);
    CHECK(said.starts_with(file + ":"));
    CHECK(said.find("nested ") != std::string::npos);
    CHECK(said.find(" levels") != std::string::npos);
  };
  const auto write = [&](const std::string& name, const std::string& before,
                         const std::string& after) {
    return folder.write(name, before + deep + after);
  };
  for (const std::string before :
       {"{\"kind\": \"chars\", \"size\": 1, \"tokens\": [", "{\"model\": [", "{\"a\": [", "["}) {
    const std::string after = before == "[" ? "]" : "]}";
    const std::string vocabulary = write("a.json", before, after);
    refuses(vocabulary, [&] { Vocabulary::load(vocabulary); });
    refuses(vocabulary, [&] { open_tokenizer(vocabulary); });
  }
  const std::string whole = Vocabulary::bytes().to_json();
  const std::string known =
      folder.write("b.json", whole.substr(0, whole.rfind('}')) + ", \"x\": " + deep + "}");
  refuses(known, [&] { open_tokenizer(known); });
  const std::string meta = write("meta.json", "{\"vocab_size\": 1, \"itos\": [", "]}");
  refuses(meta, [&] { parse_nanogpt_meta(folder.read("meta.json"), meta); });
  const std::string manifest =
      write("manifest.json", "{\"kind\": \"xtrain tokens\", \"plan\": ", "}");
  refuses(manifest, [&] { tokenizer_beside(folder.file("train.bin")); });
  const std::string pair = write("vocab.json", "{\"a\": ", "}");
  refuses(pair, [&] { tokenizer_in(folder.path.string()); });
  std::filesystem::remove(pair);
  const std::string config = write("tokenizer_config.json", "{\"eos_token\": ", "}");
  refuses(config, [&] { tokenizer_in(folder.path.string()); });
  const std::string generation = write("generation_config.json", "{\"top_k\": ", "}");
  refuses(generation, [&] { read_generation_config(folder.path.string()); });
  const std::string lines = write("e.jsonl", "\n{\"context\": ", "}\n");
  refuses(lines + ":2", [&] { open_multiple_choice(lines, Vocabulary::bytes()); });
  const std::string files = write("manifest.json", "{\"files\": {\"a\": ", "}}");
  refuses(files, [&] { verify_checkpoint(folder.path.string()); });
}
