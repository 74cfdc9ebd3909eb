#include "train/eval/multiple_choice_file.h"

#include <string>
#include <vector>

#include "support/catch.h"
#include "support/rejection.h"
#include "support/temporary_folder.h"
#include "train/eval/multiple_choice_bytes.h"

namespace xtrain {
namespace {

const std::vector<MultipleChoiceExample>& two_examples() {
  static const std::vector<MultipleChoiceExample> kExamples{
      {{464, 50256}, {{1, 2, 3}, {4}, {5, 6}, {7}}, 2, ""}, {{9}, {{10}, {11, 12}}, 0, ""}};
  return kExamples;
}

std::vector<ExampleWords> two_examples_words() {
  return {example_words(two_examples()[0], 0), example_words(two_examples()[1], 1)};
}

// What is said of a file that changes the words of the second example.
template <class Change>
std::string why(const TemporaryFolder& folder, const Change& change) {
  std::vector<ExampleWords> words = two_examples_words();
  change(words[1]);
  const std::string path = folder.write("e.bin", eval_file(words));
  const std::string message =
      rejection([&] { open_multiple_choice(path, Vocabulary::ids(50257)); });
  return message.starts_with(path + ": ") ? message.substr(path.size() + 2) : message;
}

TEST_CASE("multiple choice files: llm.c's layout is read, whatever its name") {
  const TemporaryFolder folder;
  for (const char* name : {"hellaswag_val.bin", "hellaswag.dat"}) {
    const std::string path = folder.write(name, eval_file(two_examples_words()));
    const MultipleChoiceSet set = open_multiple_choice(path, Vocabulary::ids(50257));
    CHECK(set.name == path);
    CHECK(set.reader == "multiple choice, headered uint16 (magic 20240522)");
    REQUIRE(set.examples.size() == 2);
    for (size_t i = 0; i < 2; ++i) {
      CHECK(set.examples[i].context == two_examples()[i].context);
      CHECK(set.examples[i].choices == two_examples()[i].choices);
      CHECK(set.examples[i].answer == two_examples()[i].answer);
    }
    CHECK(set.examples[1].where == path + ": example 1");
  }
}

TEST_CASE("multiple choice files: every field of llm.c's layout is checked") {
  const TemporaryFolder folder;
  // The second example is 65535, 20 bytes, index 1, answer 0, 2 choices, 1: 9, 1: 10, 2: 11 12.
  const auto set = [&](size_t word, uint16_t value) {
    return why(folder, [&](ExampleWords& words) { words[word] = value; });
  };
  CHECK(set(0, 65534) == "example 1: must begin with 65535 at byte 1062; found 65534");
  CHECK(set(1, 26) == "example 1: says that it has 26 bytes; 24 are left in the file");
  CHECK(set(1, 23) == "example 1: says that it has 23 bytes; 24 are left in the file");
  CHECK(set(1, 22) == "example 1: its choice 1 should have 2 tokens; there are 1 numbers left");
  CHECK(set(1, 8) == "example 1: ends before its number of choices, at byte 1070");
  CHECK(set(2, 2) == "example 1: must have index 1; found 2");
  CHECK(set(3, 2) == "example 1: its answer must lie in 0..1; found 2");
  CHECK(set(4, 1) == "example 1: must have at least 2 choices; found 1");
  CHECK(set(4, 3) == "example 1: ends before its choice 2, at byte 1086");
  CHECK(set(5, 0) == "example 1: its context must hold at least one token");
  CHECK(set(5, 7) == "example 1: its context should have 7 tokens; there are 6 numbers left");
  CHECK(set(6, 50257) ==
        "example 1: token 0 of its context has id 50257; ids must lie in 0..50256");
  CHECK(set(11, 65535) ==
        "example 1: token 1 of its choice 1 has id 65535; ids must lie in 0..50256");
  CHECK(set(9, 1) == "example 1: says that it has 24 bytes; it fills 22");
  CHECK(set(6, 50256) == "accepted");
}

TEST_CASE("multiple choice files: every number of llm.c's header is checked") {
  const TemporaryFolder folder;
  const auto why_not = [&](const std::string& bytes) {
    const std::string path = folder.write("e.bin", bytes);
    const std::string message =
        rejection([&] { open_multiple_choice(path, Vocabulary::ids(50257)); });
    return message.starts_with(path + ": ") ? message.substr(path.size() + 2) : message;
  };
  const std::string good = eval_file(two_examples_words());
  CHECK(why_not("") == "the header must have 1024 bytes; found 0");
  CHECK(why_not(good.substr(0, 1000)) == "the header must have 1024 bytes; found 1000");
  CHECK(why_not(eval_file(two_examples_words(), 20240520)) ==
        "multiple choice must begin with magic 20240522; found 20240520, another kind of file");
  CHECK(why_not(eval_file(two_examples_words(), 20240522, 2)) ==
        "magic 20240522 must have version 1; found 2");
  CHECK(why_not(eval_file({})) == "the header must say how many examples there are; found 0");
  CHECK(why_not(good + "ab") ==
        "the header says 2 examples, which end at byte 1086; the file has 1088");
  CHECK(why_not(good.substr(0, good.size() - 1)) ==
        "example 1: says that it has 24 bytes; 23 are left in the file");
  CHECK(why_not(good.substr(0, 1062)) == "example 1: ends before its start, at byte 1062");
  CHECK(why_not(eval_file(two_examples_words(), 20240522, 1, 2)) ==
        "the header says that the longest example has 40 bytes; it has 38");
  for (size_t size = 0; size < good.size(); ++size)
    CHECK(why_not(good.substr(0, size)) != "accepted");
}

MultipleChoiceSet read_lines(const TemporaryFolder& folder, const std::string& lines,
                             const Vocabulary& vocabulary = Vocabulary::bytes()) {
  return open_multiple_choice(folder.write("e.jsonl", lines), vocabulary);
}

TEST_CASE("multiple choice files: JSON lines in each of the usual spellings") {
  const TemporaryFolder folder;
  const Vocabulary bytes = Vocabulary::bytes();
  for (const std::string line : {
           R"({"context": "Ab", "choices": ["c", "de"], "label": 1})",
           R"({"ctx": "Ab", "endings": ["c", "de"], "label": "1", "ind": 7, "ctx_a": "A"})",
           R"({"query": "Ab", "choices": ["c", "de"], "gold": 1})",
           R"({"question": "Ab", "choices": ["c", "de"], "answer": "B"})",
           R"({"context": "Ab", "choices": [" c", " de"], "label": 1})",
       }) {
    INFO(line);
    const MultipleChoiceSet set = read_lines(folder, "\n" + line + "\r\n  \n");
    REQUIRE(set.examples.size() == 1);
    const MultipleChoiceExample& example = set.examples[0];
    CHECK(bytes.decode(example.context) == "Ab");
    CHECK(bytes.decode(example.choices[0]) == " c");
    CHECK(bytes.decode(example.choices[1]) == " de");
    CHECK(example.answer == 1);
    CHECK(example.where == folder.file("e.jsonl") + ":2");
  }
  const auto first_choice = [&](const std::string& line) {
    return bytes.decode(read_lines(folder, line).examples[0].choices[0]);
  };
  CHECK(first_choice(R"({"context": "A ", "choices": ["c", "d"], "label": 0})") == "c");
  CHECK(first_choice(R"({"context": "A:\n", "choices": ["c", "d"], "label": 0})") == "c");
  CHECK(first_choice(R"({"context": "A", "choices": ["\u00e9\ud83d\ude00", "d"], "label": 0})") ==
        " \u00e9\U0001F600");
  CHECK(read_lines(folder, R"({"context": "1 2", "choices": ["3", "4 5"], "label": 0})",
                   Vocabulary::ids(10))
            .examples[0]
            .choices[1] == std::vector<int32_t>{4, 5});
}

TEST_CASE("multiple choice files: a bad line is rejected with its number and why") {
  const TemporaryFolder folder;
  const auto why_not = [&](const std::string& line) {
    const std::string good = R"({"context": "A", "choices": ["b", "c"], "label": 0})";
    const std::string message = rejection([&] { read_lines(folder, good + "\n" + line + "\n"); });
    const std::string where = folder.file("e.jsonl") + ":2: ";
    return message.starts_with(where) ? message.substr(where.size()) : message;
  };
  CHECK(why_not("{") == "must be a JSON object in UTF-8");
  CHECK(why_not("[1]") == "must be a JSON object in UTF-8");
  CHECK(why_not("{\"context\": \"\xFF\", \"choices\": [\"b\", \"c\"], \"label\": 0}") ==
        "must be a JSON object in UTF-8");
  CHECK(why_not(R"({"choices": ["b", "c"], "label": 0})") == "must have \"context\"");
  CHECK(why_not(R"({"context": "A", "label": 0})") == "must have \"choices\"");
  CHECK(why_not(R"({"context": "A", "choices": ["b", "c"]})") == "must have \"label\"");
  CHECK(why_not(R"({"context": "A", "ctx": "A", "choices": ["b", "c"], "label": 0})") ==
        "\"context\" and \"ctx\" mean the same; give one");
  CHECK(why_not(R"({"context": ["A"], "choices": ["b", "c"], "label": 0})") ==
        "the context must be text; got [\"A\"]");
  CHECK(why_not(R"({"context": "", "choices": ["b", "c"], "label": 0})") ==
        "the context must hold at least one token");
  CHECK(why_not(R"({"context": "A", "choices": ["b"], "label": 0})") ==
        "the choices must be a list of at least 2 texts");
  CHECK(why_not(R"({"context": "A", "choices": "bc", "label": 0})") ==
        "the choices must be a list of at least 2 texts");
  CHECK(why_not(R"({"context": "A", "choices": ["b", 3], "label": 0})") ==
        "a choice must be text; got 3");
  CHECK(why_not(R"({"context": "A", "choices": ["b", ""], "label": 0})") ==
        "a choice must hold at least one token");
  const std::string answers =
      "the answer must be the index of a choice, 0..1, or its letter, A..B; got ";
  for (const std::string label : {"2", "-1", "1.0", "\"C\"", "\"1x\"", "\"b\"", "\"\"", "null",
                                  "18446744073709551615", "\"99999999999999999999\""}) {
    CHECK(why_not(R"({"context": "A", "choices": ["b", "c"], "label": )" + label + "}") ==
          answers + label);
  }
  CHECK(rejection([&] { read_lines(folder, "\n\n"); }) ==
        folder.file("e.jsonl") + ": holds no examples");
}

}  // namespace
}  // namespace xtrain
