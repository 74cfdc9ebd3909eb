#include "train/data/vocabulary.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "support/catch.h"
#include "support/rejection.h"
#include "support/temporary_folder.h"
#include "train/data/bpe_trainer.h"

namespace xtrain {
namespace {

using namespace std::string_literals;

Vocabulary chars_of(std::string_view text) {
  CharacterSet characters;
  characters.add(text, "a.txt");
  return Vocabulary::chars(characters);
}

std::string round_trip(const Vocabulary& vocabulary, std::string_view text) {
  return vocabulary.decode(vocabulary.encode(text));
}

TEST_CASE(
    "vocabulary: bytes bring any text back, invalid UTF-8, CR and a byte order mark included") {
  const Vocabulary bytes = Vocabulary::bytes();
  CHECK(bytes.size() == 256);
  CHECK(bytes.encode("\xFF\xFE\x80"s + "A") == std::vector<int32_t>{255, 254, 128, 65});
  for (const std::string& text :
       {"\xFF\xFE\x80"s + "A", "a\r\nb\n\n\n  c\t\u00a0d"s, "\xEF\xBB\xBFhello"s, "\0x\0"s, ""s}) {
    CHECK(round_trip(bytes, text) == text);
  }
  CHECK(bytes.encode("").empty());
}

TEST_CASE("vocabulary: a character written token by token is exactly its bytes") {
  const Vocabulary bytes = Vocabulary::bytes();
  std::string streamed;
  for (const int32_t id : bytes.encode("\U0001F642")) streamed += bytes.decode({&id, 1});
  CHECK(streamed == "\xF0\x9F\x99\x82");
  const std::vector<int32_t> cut{0xF0, 0x9F};
  CHECK(bytes.decode(cut) == "\xF0\x9F");
}

TEST_CASE("vocabulary: characters are numbered in code point order") {
  const Vocabulary chars = chars_of("b\u00e9a\r\n\U0001F642b\u20ac\uFEFF");
  CHECK(chars.size() == 8);  // \n \r a b e-acute euro mark smile
  CHECK(chars.encode("\n\rab\u00e9\u20ac\uFEFF\U0001F642") ==
        std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(round_trip(chars, "a\r\n\uFEFFb\U0001F642") == "a\r\n\uFEFFb\U0001F642");
  CHECK(rejection([&] { chars.encode("ab\u00fc", "prompt"); }) ==
        "prompt: the character \"\u00fc\" at byte 2 is not one of the 8 in the vocabulary");
}

TEST_CASE("vocabulary: characters that are not valid UTF-8 are rejected with their offset") {
  for (const std::string& bad : {"\xFF"s, "\x80"s, "\xC0\x80"s, "\xE2\x82"s, "\xED\xA0\x80"s,
                                 "\xF4\x90\x80\x80"s, "\xE2\x82x"s, "\xF0\x80\x80\x80"s}) {
    CHECK(rejection([&] { chars_of("ok " + bad); }) ==
          "a.txt: byte 3 does not begin a valid UTF-8 character; use source \"text\", which takes "
          "any "
          "bytes");
  }
}

TEST_CASE("vocabulary: ids are read and written as numbers") {
  const Vocabulary ids = Vocabulary::ids(50257);
  CHECK(ids.encode(" 12 50256,\n0") == std::vector<int32_t>{12, 50256, 0});
  CHECK(ids.decode(std::vector<int32_t>{12, 7}) == "12 7 ");
  CHECK(rejection([&] { ids.encode("12 50257", "prompt"); }) ==
        "prompt: must be token ids in 0..50256; got \"50257\"");
  CHECK(rejection([&] { ids.encode("1x", "prompt"); }) ==
        "prompt: must be token ids in 0..50256; got \"1x\"");
}

TEST_CASE("vocabulary: an id outside it cannot be written") {
  const std::vector<int32_t> beyond{256}, negative{-1};
  CHECK_THROWS_WITH(Vocabulary::bytes().decode(beyond),
                    "vocabulary: id must lie in 0..255; got 256");
  CHECK_THROWS_AS(Vocabulary::bytes().decode(negative), Error);
}

TEST_CASE("vocabulary: a tokenizer.json is one too") {
  PieceCounts counts{PreTokenizer(kGpt2Pattern)};
  counts.add("the cat and the hat");
  const Vocabulary trained =
      Vocabulary::bpe(std::make_shared<BpeTokenizer>(train_bpe(counts, {260, 2})));
  const TemporaryFolder folder;
  const Vocabulary loaded = Vocabulary::load(folder.write("tokenizer.json", trained.to_json()));
  CHECK(loaded.kind_name() == "bpe");
  CHECK(loaded.size() == 260);
  CHECK(loaded.to_json() == trained.to_json());
  const std::string text = "\xFFthe hat<|endoftext|>";
  CHECK(loaded.encode(text) == trained.encode(text));
  CHECK(loaded.encode(text).back() == 259);
  CHECK(round_trip(loaded, text) == text);
}

TEST_CASE("vocabulary: written and loaded, it is the same, with either kind of line end") {
  const TemporaryFolder folder;
  const std::string text = "a\r\nb\n\n\n  c\t\u00a0d\"\\";
  for (const Vocabulary& original : {chars_of(text), Vocabulary::bytes(), Vocabulary::ids(300)}) {
    const std::string path = folder.write("vocabulary.json", original.to_json());
    std::string with_crlf;
    for (const char c : original.to_json()) with_crlf += c == '\n' ? "\r\n"s : std::string(1, c);
    for (const Vocabulary& loaded :
         {Vocabulary::load(path), Vocabulary::from_json(with_crlf, "crlf")}) {
      CHECK(loaded.kind() == original.kind());
      CHECK(loaded.size() == original.size());
      CHECK(loaded.to_json() == original.to_json());
      if (original.kind() != Vocabulary::Kind::ids)
        CHECK(loaded.encode(text) == original.encode(text));
    }
  }
}

TEST_CASE("vocabulary: a damaged file is rejected by name") {
  const auto why = [](std::string_view json) {
    return rejection([&] { Vocabulary::from_json(json, "v.json"); });
  };
  for (const char* json : {"[]", "{}", R"({"kind":"chars"})", R"({"kind":1,"size":1})"}) {
    CHECK(why(json) == "v.json: must be a JSON object with a \"kind\" and a \"size\"");
  }
  const std::string whole = R"({"kind":"chars","size":1,"tokens":["a"],"model":{}})";
  for (size_t cut = 0; cut < whole.size(); ++cut) {
    CHECK(why(whole.substr(0, cut)) == "v.json: is not JSON at byte " + std::to_string(cut + 1) +
                                           " of " + std::to_string(cut) +
                                           "; the file is damaged or cut short");
  }
  CHECK(why(R"({"kind":"words","size":1})") ==
        "v.json: kind must be bytes, chars or ids; got \"words\"");
  CHECK(why(R"({"kind":"chars","size":3,"tokens":["a","b"]})") ==
        "v.json: size says 3; the list has 2");
  for (const char* json : {R"({"kind":"chars","size":2,"tokens":["a","bc"]})",
                           R"({"kind":"chars","size":2,"tokens":["a",""]})",
                           R"({"kind":"chars","size":2,"tokens":["a",7]})",
                           R"({"kind":"chars","size":2,"tokens":["b","a"]})"}) {
    CHECK(why(json).starts_with(
        "v.json: tokens must be single characters in code point order; entry 1"));
  }
}

}  // namespace
}  // namespace xtrain
