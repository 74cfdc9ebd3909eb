#include "train/data/plain_pickle.h"

#include <string>
#include <vector>

#include "support/catch.h"
#include "support/rejection.h"

namespace xtrain {
namespace {

using namespace std::string_literals;

std::string why(const std::string& pickle) {
  return rejection([&] { json_of_pickle(pickle, "m.pkl"); });
}

// What Python writes of {"vocab_size": 3, "itos": {0: "\n", 1: "a", 2: "é"}, "stoi": {...}}.
const std::string kBehind2 =
    "}q\x00(X\n\x00\x00\x00vocab_sizeq\x01K\x03X\x04\x00\x00\x00itosq\x02}q\x03("
    "K\x00X\x01\x00\x00\x00\nq\x04K\x01X\x01\x00\x00\x00"
    "aq\x05K\x02X\x02\x00\x00\x00\xc3\xa9q\x06uX\x04\x00\x00\x00stoiq\x07}q\x08(h\x04K\x00h\x05K\x01h\x06K\x02uu."s;
const std::string kProtocol4 =
    "\x80\x04\x95I\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\nvocab_size\x94K\x03\x8c\x04itos\x94}\x94("
    "K\x00\x8c\x01\n\x94K\x01\x8c\x01"
    "a\x94K\x02\x8c\x02\xc3\xa9\x94u\x8c\x04stoi\x94}\x94(h\x04K\x00h\x05K\x01h\x06K\x02uu."s;

TEST_CASE("plain_pickle: dictionaries come out in every protocol") {
  const std::string expected =
      "{\"itos\":{\"0\":\"\\n\",\"1\":\"a\",\"2\":\"\u00e9\"},"
      "\"stoi\":{\"\\n\":0,\"a\":1,\"\u00e9\":2},\"vocab_size\":3}";
  std::string protocol5 = kProtocol4;
  protocol5[1] = 5;
  for (const std::string& pickle :
       {"\x80\x02" + kBehind2, "\x80\x03" + kBehind2, kProtocol4, protocol5}) {
    CHECK(json_of_pickle(pickle, "m.pkl") == expected);
  }
}

TEST_CASE("plain_pickle: values of every kind") {
  // [True, False, None, -1, 2**40, 70000, 255, 256, -129, {}]
  CHECK(json_of_pickle("\x80\x02]q\x00(\x88\x89NJ\xff\xff\xff\xff\x8a\x06\x00\x00\x00\x00\x00\x01J"
                       "p\x11\x01\x00K\xffM\x00\x01\x8a\x02\x7f\xff}e."s,
                       "") == "[true,false,null,-1,1099511627776,70000,255,256,-129,{}]");
  CHECK(json_of_pickle("\x80\x02\x8a\x00."s, "") == "0");
  CHECK(json_of_pickle("\x80\x02\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f."s, "") ==
        "9223372036854775807");
  CHECK(json_of_pickle("\x80\x02\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80."s, "") ==
        "-9223372036854775808");
  CHECK(json_of_pickle("\x80\x04]\x94(K\x01K\x02"
                       "eK\x03"
                       "a."s,
                       "") == "[1,2,3]");
  CHECK(json_of_pickle("\x80\x04}\x94\x8c\x01xK\x07s."s, "") == "{\"x\":7}");
  CHECK(json_of_pickle("\x80\x04\x8d\x02\x00\x00\x00\x00\x00\x00\x00hi."s, "") == "\"hi\"");
}

TEST_CASE("plain_pickle: nothing is ever called") {
  for (const std::string& pickle :
       {"cos\nsystem\n(S'true'\ntR."s,
        "\x80\x02"
        "cos\nsystem\nq\x00X\x04\x00\x00\x00trueq\x01\x85q\x02Rq\x03."s,
        "\x80\x04\x8c\x02os\x94\x8c\x06system\x94\x93\x94\x8c\x04true\x94\x85\x94R\x94."s,
        "(dp0\nVvocab_size\np1\nI3\ns."s, "no pickle"s}) {
    CHECK(why(pickle).find("; only pickles of protocol 2 to 5 that hold numbers, text, lists and "
                           "dictionaries are read") != std::string::npos);
  }
}

TEST_CASE("plain_pickle: what is cut short, at any byte, is refused") {
  for (const std::string& whole : {"\x80\x02" + kBehind2, kProtocol4}) {
    for (size_t cut = 0; cut < whole.size(); ++cut) {
      const std::string said = why(whole.substr(0, cut));
      INFO(cut << ": " << said);
      CHECK(said.starts_with("m.pkl: is a pickle that is cut short: byte "));
    }
    CHECK(why(whole + "x").find("must end with one value") != std::string::npos);
  }
}

TEST_CASE("plain_pickle: what does not fit together is refused") {
  const auto damaged = [](const std::string& pickle, const std::string& what) {
    const std::string said = why(pickle);
    INFO(said);
    CHECK(said.starts_with("m.pkl: is a damaged pickle: it " + what + "; at byte "));
  };
  damaged(".", "must end with one value");
  damaged("NN.", "must end with one value");
  damaged("(.", "must end with one value");
  damaged("u.", "has no mark where it needs one");
  damaged("(u.", "fills what is not there");
  damaged("s.", "fills what is not there");
  damaged("NNs.", "fills what is not there");
  damaged("NNNs.", "fills what is no list or dictionary");
  damaged("a.", "fills what is not there");
  damaged("}Na.", "fills what is no list or dictionary");
  damaged("](K\x01Nu.", "fills what is no list or dictionary");
  damaged("}(Nu.", "has a key without a value");
  damaged("}NNs.", "has a key that is no text or number");
  damaged("}K\x01NsK\x01Ns.", "has a key twice");
  damaged("}K\x01NsX\x01"s + "\0\0\0"s + "1Ns.", "has a key twice");
  damaged("]((Ne.", "fills what is no list or dictionary");
  damaged("q\x01.", "remembers a value that is not there");
  damaged("(q\x01.", "remembers a value that is not there");
  damaged("h\x01.", "refers to a value that is not there");
  damaged(
      "]q\x01h\x01"
      "a.",
      "has one list or dictionary in two places");
  damaged(
      "\x8a\x09"
      "123456789.",
      "has a number beyond 64 bits");
  damaged("\x8c\x01\xff.", "holds text that is not UTF-8");
  damaged("\x8c\x03\xed\xa0\x80.", "holds text that is not UTF-8");
  damaged(std::string(9, ']') + "aaaaaaaa.", "is nested too deeply");
  CHECK(why(std::string(8, ']') + "aaaaaaa.") == "accepted");
  CHECK(why("\x80\x06N.") == "m.pkl: is a pickle of protocol 6; it must be one of 2 to 5");
  CHECK(why("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
            "x.")
            .find("cut short") != std::string::npos);
}

TEST_CASE("plain_pickle: a small file that refers to its text often does not grow without end") {
  std::string pickle = "](X"s + "\x00\x00\x10\x00"s + std::string(1 << 20, 'x') + "q\x01";
  for (int i = 0; i < 1000; ++i) pickle += "h\x01";
  CHECK(why(pickle + "e.").find("has more text than a vocabulary can") != std::string::npos);
}

}  // namespace
}  // namespace xtrain
