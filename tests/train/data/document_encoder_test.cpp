#include "train/data/document_encoder.h"

#include <string>

#include "support/catch.h"
#include "support/rejection.h"

namespace xtrain {
namespace {

std::string text(std::string_view line) {
  return text_of_json(line, "", "f.jsonl:3");
}

std::string why(std::string_view line, const std::string& field = "") {
  return rejection([&] { text_of_json(line, field, "f.jsonl:3"); });
}

TEST_CASE("document_encoder: text comes out of JSON as it was written there") {
  CHECK(text(R"({"text": "a\tb\n\"\\\/"})") == "a\tb\n\"\\/");
  CHECK(text(R"({"meta": {"text": "no"}, "text": "yes"})") == "yes");
  CHECK(text(R"({"text": "\u00e9 \ud83d\ude42 \u0000."})") ==
        std::string("\u00e9 \U0001F642 \0.", 10));
  CHECK(text("\uFEFF{\"text\": \"\u4eca\"}\r") == "\u4eca");
  CHECK(text(R"({"text": ""})").empty());
  CHECK(text_of_json(R"({"text": 1, "content": "c"})", "content", "") == "c");
}

TEST_CASE("document_encoder: lines that hold no text are refused with file and line") {
  CHECK(why("{\"text\": \"a\"") == "f.jsonl:3: is not JSON at byte 13 of the line");
  CHECK(why(R"({"text": "\ud83d alone"})").starts_with("f.jsonl:3: is not JSON at byte "));
  CHECK(why(R"({"text": "\ude42 alone"})").starts_with("f.jsonl:3: is not JSON at byte "));
  CHECK(why("{\"text\": \"\xFF\"}").starts_with("f.jsonl:3: is not JSON at byte "));
  CHECK(why("{\"text\": \"a\"} {}").starts_with("f.jsonl:3: is not JSON at byte "));
  CHECK(why("plain") == "f.jsonl:3: is not JSON at byte 1 of the line");
  CHECK(why("[1]") == "f.jsonl:3: must be a JSON object; it is of type array");
  CHECK(why("{\"txt\": \"a\"}") == "f.jsonl:3: has no member \"text\"");
  CHECK(why("{\"text\": null}") ==
        "f.jsonl:3: member \"text\" must be a string; it is of type null");
  CHECK(why("{\"text\": \"a\"}", "body") == "f.jsonl:3: has no member \"body\"");
}

}  // namespace
}  // namespace xtrain
