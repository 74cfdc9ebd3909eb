#include "train/data/document_reader.h"

#include <string>
#include <vector>

#include "support/catch.h"
#include "support/rejection.h"
#include "support/temporary_folder.h"
#include "train/data/small_tokenizers.h"

namespace xtrain {
namespace {

using Texts = std::vector<std::string>;

DocumentReader reader_of(const Texts& paths, const DocumentRules& rules = {}) {
  return DocumentReader(list_input_files(paths), rules,
                        TextCutter(Vocabulary::bytes(), Markers::plain_text));
}

// The documents, their parts joined. Each part must say rightly where it comes from.
Texts documents(const Texts& paths, const DocumentRules& rules = {}) {
  DocumentReader reader = reader_of(paths, rules);
  Texts texts;
  DocumentBatch batch;
  bool open = false;
  while (reader.next(batch)) {
    for (const DocumentPart& part : batch.parts) {
      CHECK(part.from.inside == open);
      if (!open) texts.emplace_back();
      CHECK(part.from.document == static_cast<int64_t>(texts.size()) - 1);
      texts.back() += batch.text.substr(part.begin, part.end - part.begin);
      open = !part.last;
    }
  }
  CHECK_FALSE(open);
  CHECK(batch.after.file == static_cast<int64_t>(paths.size()));
  return texts;
}

TEST_CASE("document_reader: a file is a document, an empty one too") {
  const TemporaryFolder folder;
  const std::string large = mixed_text(3'000'000);
  const Texts paths{folder.write("a", "\uFEFFone\r\n"), folder.write("b", ""),
                    folder.write("c", large), folder.write("d", "end")};
  CHECK(documents(paths) == Texts{"\uFEFFone\r\n", "", large, "end"});
}

TEST_CASE("document_reader: lines that hold the marker alone part documents") {
  const TemporaryFolder folder;
  const DocumentRules rules{"", "<|end|>"};
  const auto split = [&](const std::string& text) {
    return documents({folder.write("a", text)}, rules);
  };
  CHECK(split("one\n<|end|>\ntwo\r\n<|end|>\r\nthree") == Texts{"one\n", "two\r\n", "three"});
  CHECK(split("<|end|>\none\n<|end|>\n<|end|>\ntwo\n<|end|>") == Texts{"one\n", "two\n"});
  CHECK(split("a <|end|>\n<|end|> b\nc<|end|>") == Texts{"a <|end|>\n<|end|> b\nc<|end|>"});
  CHECK(split("") == Texts{});
  CHECK(split("<|end|>") == Texts{});
  // Two files never share a document.
  CHECK(documents({folder.write("a", "one"), folder.write("b", "two")}, rules) ==
        Texts{"one", "two"});
  CHECK(rejection([] {
          reader_of({}, {"", "a\nb"});
        }) == "the marker that documents are split on must be one line");
}

TEST_CASE("document_reader: markers are found wherever the reading of the file was cut") {
  const TemporaryFolder folder;
  // The marker line moves over the borders of what is read at once, and of long parts.
  for (const size_t border : {size_t{1} << 18, size_t{1} << 20}) {
    for (size_t before = border - 12; before <= border + 2; ++before) {
      const std::string first = std::string(before, 'x') + '\n', second = "<|end|>s\n";
      const std::string path = folder.write("a", first + "<|end|>\n" + second);
      if (documents({path}, {"", "<|end|>"}) != Texts{first, second}) {
        FAIL_CHECK("a marker behind " << before << " bytes");
      }
    }
  }
}

TEST_CASE("document_reader: every line of JSONL that is not blank is a document, with its number") {
  const TemporaryFolder folder;
  const std::string long_line = "{\"text\":\"" + std::string(2'000'000, 'y') + "\"}";
  const std::string path = folder.write("a.jsonl", "{1}\n\n \t\r\n{2}\r\n" + long_line + "\n{4}");
  DocumentReader reader = reader_of({path, folder.write("b.txt", "{5}\n")});
  DocumentBatch batch;
  Texts seen;
  while (reader.next(batch)) {
    for (const DocumentPart& part : batch.parts) {
      const std::string text = batch.text.substr(part.begin, part.end - part.begin);
      seen.push_back(reader.where(part.from).substr(folder.path.string().size() + 1) +
                     (part.json ? " json " : " text ") + (text.size() > 9 ? "long" : text));
    }
  }
  CHECK(seen == Texts{"a.jsonl:1 json {1}", "a.jsonl:4 json {2}\r", "a.jsonl:5 json long",
                      "a.jsonl:6 json {4}", "b.txt:1 text {5}\n"});
  // With a field named, every file is JSONL.
  CHECK(documents({folder.write("c", "{1}\n{2}\n")}, {"content", ""}) == Texts{"{1}", "{2}"});
}

// Reads the rest from where each batch ends, in a reader of its own.
void check_seek(const Texts& paths, const DocumentRules& rules) {
  DocumentReader reader = reader_of(paths, rules);
  std::vector<ReadPosition> ends;
  Texts rest;
  DocumentBatch batch;
  while (reader.next(batch)) {
    for (std::string& text : rest) text += batch.text;
    ends.push_back(batch.after);
    rest.emplace_back();
  }
  REQUIRE(ends.size() > 3);
  for (size_t i = 0; i < ends.size(); ++i) {
    DocumentReader later = reader_of(paths, rules);
    later.seek(ends[i]);
    std::string read;
    while (later.next(batch)) read += batch.text;
    CHECK(read == rest[i]);
    CHECK(batch.after == ends.back());
  }
}

TEST_CASE("document_reader: another reader goes on from wherever one has come to") {
  const TemporaryFolder folder;
  std::string lines, marked;
  for (int i = 0; i < 30'000; ++i) {
    lines += "{\"text\": \"line " + std::to_string(i) + "\"}\n";
    marked += i % 5000 == 0 ? "<|end|>\n" : "line " + std::to_string(i * 7919) + "\n";
  }
  const std::string a = folder.write("a", mixed_text(1'000'000)), b = folder.write("b", lines),
                    c = folder.write("c", marked + marked);
  check_seek({a, c, a}, {});
  check_seek({b, b}, {"text", ""});
  check_seek({c, a}, {"", "<|end|>"});
}

TEST_CASE("document_reader: a file that changes while it is read is refused by name") {
  const TemporaryFolder folder;
  const std::string path = folder.write("a", "12345");
  DocumentReader shorter = reader_of({path}), longer = reader_of({path});
  DocumentBatch batch;
  folder.write("a", "1234");
  CHECK(rejection([&] { shorter.next(batch); }) ==
        path + ": must not change while it is read; it had 5 bytes, and now has 4");
  folder.write("a", "123456");
  CHECK(rejection([&] { longer.next(batch); }) ==
        path + ": must not change while it is read; it had 5 bytes, and now has 6");
}

}  // namespace
}  // namespace xtrain
