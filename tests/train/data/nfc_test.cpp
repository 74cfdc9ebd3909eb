#include "train/data/nfc.h"

#include <string>

#include "support/catch.h"

namespace xtrain {
namespace {

struct Example {
  std::string text, composed;
};

TEST_CASE("nfc: characters join, change their order and their spelling as Unicode has it") {
  const Example examples[] = {
      {"e\u0301 A\u030A", "\u00e9 \u00c5"},  // letter and mark
      {"a\u0302\u0323b",
       "\u1ead"
       "b"},                                        // marks in the other order
      {"q\u0307\u0323", "q\u0323\u0307"},           // marks that change places and join nothing
      {"\u212B \u2126 \u037E", "\u00c5 \u03a9 ;"},  // other characters stand for the same
      {"\u0958", "\u0915\u093c"},                   // never written as one
      {"\u1100\u1161\u11a8", "\uac01"},             // three letters, one syllable
      {"\uac00\u11a8\u1100", "\uac01\u1100"},       // a syllable takes one more letter
      {"\u304b\u3099\u3002", "\u304c\u3002"},       // kana and voicing mark
      {"\u0928\u093c", "\u0929"},                   //
      {"<\u0338\n\u0338", "\u226e\n\u0338"},        // a sign and its stroke
      {"\uf900\u4e00", "\u8c48\u4e00"},             // compatibility ideograph
      {"\u09c7\u09be", "\u09cb"},                   // joined by a vowel that is no mark
      {"\U0001D15E", "\U0001D157\U0001D165"},
  };
  for (const Example& example : examples) {
    CHECK(to_nfc(example.text) == example.composed);
    CHECK_FALSE(surely_nfc(example.text));
    CHECK(to_nfc("x" + example.text + "\u4eca\xFF" + example.text) ==
          "x" + example.composed + "\u4eca\xFF" + example.composed);
    CHECK(to_nfc(example.composed) == example.composed);
  }
}

TEST_CASE("nfc: text whose characters cannot change is known at once") {
  for (const std::string text :
       {"plain \u00e9\u00df", "\u4eca\u5929\u3002\u304c\u30d1", "\ud55c\uad6d\uc5b4",
        "\U0001F642\u2019", "\u041f\u0440\u0438\u0432\u0435\u0442 \u0439", "a\xFF\xE4\xBB", ""}) {
    CHECK(surely_nfc(text));
    CHECK(to_nfc(text) == text);
  }
}

}  // namespace
}  // namespace xtrain
