#include "train/eval/multiple_choice_file.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/json_values.h"
#include "core/mapped_file.h"
#include "train/data/text_encoder.h"
#include "train/data/token_file.h"

namespace xtrain {
namespace {

using Json = nlohmann::json;

// --- llm.c ---------------------------------------------------------------------------------------

constexpr int32_t kMagic = 20240522;
constexpr int64_t kHeaderBytes = 1024;
constexpr int64_t kStart = 65535;

int64_t header_field(const MappedFile& file, int64_t index) {
  int32_t value;
  std::memcpy(&value, file.data() + 4 * index, sizeof value);
  return value;
}

// The numbers of one example, none of which may lie beyond its end.
class ExampleNumbers {
 public:
  ExampleNumbers(const MappedFile& file, int64_t begin, std::string where)
      : file_(file), at_(begin), end_(file.size()), where_(std::move(where)) {}

  const std::string& where() const { return where_; }
  int64_t at() const { return at_; }
  void set_end(int64_t end) { end_ = end; }

  int64_t next(std::string_view what) {
    check_input(at_ + 2 <= end_, where_, ": ends before its ", what, ", at byte ", end_);
    uint16_t value;
    std::memcpy(&value, file_.data() + at_, sizeof value);
    at_ += 2;
    return value;
  }

  std::vector<int32_t> tokens(const std::string& what, int64_t vocab_size) {
    const int64_t count = next(what);
    check_input(count > 0, where_, ": its ", what, " must hold at least one token");
    check_input(count <= (end_ - at_) / 2, where_, ": its ", what, " should have ", count,
                " tokens; there are ", (end_ - at_) / 2, " numbers left");
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t id = next(what);
      check_input(id < vocab_size, where_, ": token ", i, " of its ", what, " has id ", id,
                  "; ids must lie in 0..", vocab_size - 1);
      ids.push_back(static_cast<int32_t>(id));
    }
    return ids;
  }

 private:
  const MappedFile& file_;
  int64_t at_, end_;
  std::string where_;
};

// Reads the example at `at` and moves behind it.
MultipleChoiceExample read_example(const MappedFile& file, int64_t index, int64_t vocab_size,
                                   int64_t& at) {
  ExampleNumbers numbers(file, at, text(file.path(), ": example ", index));
  const std::string& where = numbers.where();
  const int64_t start = numbers.next("start");
  check_input(start == kStart, where, ": must begin with ", kStart, " at byte ", at, "; found ",
              start);
  const int64_t bytes = numbers.next("number of bytes");
  check_input(bytes % 2 == 0 && bytes <= file.size() - at, where, ": says that it has ", bytes,
              " bytes; ", file.size() - at, " are left in the file");
  numbers.set_end(at + bytes);
  const int64_t said = numbers.next("index");
  check_input(said == index, where, ": must have index ", index, "; found ", said);
  MultipleChoiceExample example;
  example.where = where;
  example.answer = numbers.next("answer");
  const int64_t choices = numbers.next("number of choices");
  check_input(choices >= 2, where, ": must have at least 2 choices; found ", choices);
  check_input(example.answer < choices, where, ": its answer must lie in 0..", choices - 1,
              "; found ", example.answer);
  example.context = numbers.tokens("context", vocab_size);
  for (int64_t i = 0; i < choices; ++i) {
    example.choices.push_back(numbers.tokens(text("choice ", i), vocab_size));
  }
  check_input(numbers.at() == at + bytes, where, ": says that it has ", bytes, " bytes; it fills ",
              numbers.at() - at);
  at += bytes;
  return example;
}

MultipleChoiceSet read_llmc(const MappedFile& file, const Vocabulary& vocabulary) {
  const std::string& path = file.path();
  check_input(file.size() >= kHeaderBytes, path, ": the header must have ", kHeaderBytes,
              " bytes; found ", file.size());
  const int64_t magic = header_field(file, 0), version = header_field(file, 1);
  check_input(magic == kMagic, path, ": multiple choice must begin with magic ", kMagic, "; found ",
              magic, ", another kind of file");
  check_input(version == 1, path, ": magic ", kMagic, " must have version 1; found ", version);
  const int64_t count = header_field(file, 2), longest = header_field(file, 3);
  check_input(count > 0, path, ": the header must say how many examples there are; found ", count);
  MultipleChoiceSet set{path, text("multiple choice, headered uint16 (magic ", kMagic, ")"), {}};
  int64_t at = kHeaderBytes, found = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = at;
    set.examples.push_back(read_example(file, i, vocabulary.size(), at));
    found = std::max(found, at - begin);
  }
  check_input(at == file.size(), path, ": the header says ", count, " examples, which end at byte ",
              at, "; the file has ", file.size());
  check_input(longest == found, path, ": the header says that the longest example has ", longest,
              " bytes; it has ", found);
  return set;
}

// --- JSON ----------------------------------------------------------------------------------------

using Names = std::initializer_list<const char*>;

// The value of the one key among `names` that is there.
const Json& field(const Json& object, Names names, const std::string& where) {
  const char* found = nullptr;
  for (const char* name : names) {
    if (!object.contains(name)) continue;
    check_input(!found, where, ": \"", found ? found : "", "\" and \"", name,
                "\" mean the same; give one");
    found = name;
  }
  check_input(found, where, ": must have \"", *names.begin(), "\"");
  return object[found];
}

std::string string_of(const Json& value, const char* what, const std::string& where) {
  check_input(value.is_string(), where, ": ", what, " must be text; got ", excerpt(value));
  return value;
}

// An index, also as text, or a letter.
int64_t answer_of(const Json& value, int64_t choices, const std::string& where) {
  int64_t answer = -1;
  if (value.is_number_integer()) {
    answer =
        value.is_number_unsigned() && value.get<uint64_t>() > INT32_MAX ? -1 : value.get<int64_t>();
  } else if (value.is_string()) {
    const std::string text = value;
    if (text.size() == 1 && text[0] >= 'A' && text[0] <= 'Z') {
      answer = text[0] - 'A';
    } else {
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), answer);
      if (error != std::errc() || end != text.data() + text.size()) answer = -1;
    }
  }
  check_input(answer >= 0 && answer < choices, where,
              ": the answer must be the index of a choice, 0..", choices - 1,
              ", or its letter, A..", static_cast<char>('A' + std::min<int64_t>(choices, 26) - 1),
              "; got ", excerpt(value));
  return answer;
}

bool is_space(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0;
}

MultipleChoiceExample parse_example(std::string_view line, TextEncoder& encoder,
                                    const std::string& where) {
  const Json object = Json::parse(shallow_json(line, where), nullptr, false);
  check_input(object.is_object(), where, ": must be a JSON object in UTF-8");
  MultipleChoiceExample example;
  example.where = where;
  const std::string context = string_of(
      field(object, {"context", "ctx", "query", "question"}, where), "the context", where);
  const Json& choices = field(object, {"choices", "endings"}, where);
  check_input(choices.is_array() && choices.size() >= 2, where,
              ": the choices must be a list of at least 2 texts");
  encoder.encode(context, where, example.context);
  check_input(!example.context.empty(), where, ": the context must hold at least one token");
  for (const Json& value : choices) {
    std::string choice = string_of(value, "a choice", where);
    check_input(!choice.empty(), where, ": a choice must hold at least one token");
    if (!is_space(choice.front()) && !is_space(context.back())) choice.insert(0, " ");
    encoder.encode(choice, where, example.choices.emplace_back());
    check_input(!example.choices.back().empty(), where, ": a choice must hold at least one token");
  }
  example.answer = answer_of(field(object, {"label", "answer", "gold"}, where),
                             static_cast<int64_t>(choices.size()), where);
  return example;
}

MultipleChoiceSet read_json_lines(const MappedFile& file, const Vocabulary& vocabulary) {
  MultipleChoiceSet set{
      file.path(), text("multiple choice, JSON lines, ", vocabulary.kind_name()), {}};
  TextEncoder encoder(vocabulary);
  std::string_view rest = file.text();
  for (int64_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (std::all_of(line.begin(), line.end(), is_space)) continue;
    set.examples.push_back(parse_example(line, encoder, text(file.path(), ":", number)));
  }
  check_input(!set.examples.empty(), file.path(), ": holds no examples");
  return set;
}

}  // namespace

MultipleChoiceSet open_multiple_choice(const std::string& path, const Vocabulary& vocabulary) {
  const MappedFile file(path);
  const bool binary = has_token_header(file) || file.path().ends_with(".bin");
  return binary ? read_llmc(file, vocabulary) : read_json_lines(file, vocabulary);
}

}  // namespace xtrain
