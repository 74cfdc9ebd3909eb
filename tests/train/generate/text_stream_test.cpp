#include "train/generate/text_stream.h"

#include "support/catch.h"
#include "support/rejection.h"

using namespace xtrain;

namespace {

// What is shown after each piece, and at the end.
std::vector<std::string> shown(StopStrings stops, const std::vector<std::string>& pieces) {
  std::vector<std::string> all;
  for (const std::string& piece : pieces) all.push_back(stops.push(piece));
  all.push_back(stops.finish());
  return all;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("text ends before a stop string, whole in a piece or spread over several", "[generate]") {
  CHECK(shown(StopStrings({"END"}), {"abENDcd", "e"}) == Texts{"ab", "", ""});
  CHECK(shown(StopStrings({"END"}), {"aE", "N", "D!", "x"}) == Texts{"a", "", "", "", ""});
  CHECK(shown(StopStrings({"END"}), {"aE", "N", "x"}) == Texts{"a", "", "ENx", ""});
  CHECK(shown(StopStrings({"END"}), {"aEN"}) == Texts{"a", "EN"});  // the text was over
  // A beginning within a beginning that came to nothing.
  CHECK(shown(StopStrings({"aab"}), {"a", "a", "a", "b", "c"}) == Texts{"", "", "a", "", "", ""});
  // The first to come counts, whatever the order given.
  CHECK(shown(StopStrings({"yz", "x"}), {"wxyz"}) == Texts{"w", ""});
  CHECK(shown(StopStrings({"abc", "b"}), {"a", "b"}) == Texts{"", "a", ""});
  CHECK(shown(StopStrings({}), {"ab", "c"}) == Texts{"ab", "c", ""});
  CHECK(rejection([] {
          StopStrings({"a", ""});
        }) == "a stop string must hold at least one character");
}

TEST_CASE("streamed bytes never split a character and come out unchanged", "[generate]") {
  const Vocabulary bytes = Vocabulary::bytes();
  const std::string smile = "\xF0\x9F\x99\x82";
  TextStream stream(bytes, {});
  std::string text;
  for (size_t i = 0; i < smile.size(); ++i) {
    const std::string piece = stream.push(static_cast<unsigned char>(smile[i]));
    CHECK(piece == (i + 1 < smile.size() ? "" : smile));
    text += piece;
  }
  CHECK(text + stream.finish() == smile);
  // Bytes that are no characters, and a text that ends within one.
  const std::string odd = "\xFF\xFE\x80\x41\xF0\x9F";
  TextStream second(bytes, {});
  text.clear();
  for (const char c : odd) text += second.push(static_cast<unsigned char>(c));
  CHECK(text == odd.substr(0, 4));
  CHECK(second.finish() == odd.substr(4));
}

TEST_CASE("a stop string that spans tokens and characters ends a stream", "[generate]") {
  const Vocabulary bytes = Vocabulary::bytes();
  TextStream stream(bytes, {"\xE2\x82\xAC\n"});  // the euro sign and a line break
  std::string text;
  for (const char c : std::string("1\xE2\x82\xAC 2\xE2\x82\xAC\n3")) {
    text += stream.push(static_cast<unsigned char>(c));
  }
  CHECK(stream.stopped());
  CHECK(text + stream.finish() == "1\xE2\x82\xAC 2");
}
