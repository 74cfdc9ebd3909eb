#include "model/hf/safetensors.h"

#include <cstring>

#include "support/catch.h"
#include "support/rejection.h"
#include "support/temporary_folder.h"

namespace xtrain {
namespace {

std::string length_bytes(uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes;
}

// A file of this header and this many bytes of values 0, 1, 2, ...
std::string file_of(const std::string& header, size_t data_bytes) {
  std::string file = length_bytes(header.size()) + header;
  for (size_t i = 0; i < data_bytes; ++i) file += static_cast<char>(i);
  return file;
}

std::string refusal_of(const std::string& content) {
  const TemporaryFolder folder;
  const std::string path = folder.write("f", content);
  const std::string message = rejection([&] { SafetensorsFile{path}; });
  // Every refusal begins with the file's name.
  return message.starts_with(path + ": ") ? message.substr(path.size() + 2) : message;
}

std::string header_refusal(const std::string& header, size_t data_bytes = 8) {
  return refusal_of(file_of(header, data_bytes));
}

// The refusal of a file with 8 bytes of values and one tensor of these members.
std::string tensor_refusal(const std::string& dtype, const std::string& shape,
                           const std::string& offsets) {
  return header_refusal(R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape +
                        R"(,"data_offsets":)" + offsets + "}}");
}

std::string content_of(const SafetensorsEntry& entry) {
  return {reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size()};
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST_CASE("safetensors: lengths of the header that cannot be are refused", "[safetensors]") {
  CHECK(refusal_of("") == "must begin with the 8-byte length of its header; got a file of 0 bytes");
  CHECK(refusal_of("1234567") ==
        "must begin with the 8-byte length of its header; got a file of 7 bytes");
  const std::string bounds = "the header must have 2 to 100000000 bytes; its length is given as ";
  CHECK(refusal_of(length_bytes(0) + "{}") == bounds + "0");
  CHECK(refusal_of(length_bytes(uint64_t{1} << 63) + "{}") == bounds + "9223372036854775808");
  CHECK(refusal_of(length_bytes(~uint64_t{0}) + "{}") == bounds + "18446744073709551615");
  CHECK(refusal_of(length_bytes(3) + "{}") ==
        "the header's length is given as 3 bytes; only 2 follow");
  CHECK(refusal_of(length_bytes(100'000'000) + "{}") ==
        "the header's length is given as 100000000 bytes; only 2 follow");
  CHECK(refusal_of(length_bytes(7) + R"({"a":{"dtype")") ==
        "the header must be valid JSON; it is not at its byte 8");
}

TEST_CASE("safetensors: a header that is not a JSON object is refused", "[safetensors]") {
  CHECK(header_refusal("not JSON") == "the header must be a JSON object");
  CHECK(header_refusal("[1, 2]") == "the header must be a JSON object");
  CHECK(header_refusal(" {}") == "the header must be a JSON object");
  CHECK(header_refusal("{}x") == "the header must be valid JSON; it is not at its byte 3");
  CHECK(header_refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8)") ==
        "the header must be valid JSON; it is not at its byte 52");
  CHECK(header_refusal("{\"\xff\":1}") == "the header must be valid JSON; it is not at its byte 3");
}

TEST_CASE("safetensors: members of the wrong form are refused naming the tensor", "[safetensors]") {
  CHECK(header_refusal(R"({"a":3})") == "tensor a must not be a number");
  CHECK(header_refusal(R"({"a":[]})") == "tensor a must not be an array");
  CHECK(header_refusal(R"({"a":null})") == "tensor a must not be null");
  CHECK(header_refusal(R"({"a":{}})") == "tensor a: dtype is missing");
  CHECK(header_refusal(R"({"a":{"dtype":"F32","shape":[2]}})") ==
        "tensor a: data_offsets is missing");
  CHECK(header_refusal(R"({"a":{"dtyp":"F32"}})") ==
        "tensor a: dtyp is unknown; a tensor has dtype, shape and data_offsets");
  CHECK(header_refusal(R"({"a":{"dtype":"F32","dtype":"F32"}})") ==
        "tensor a: dtype is given twice");
  CHECK(tensor_refusal("3", "[2]", "[0,8]") == "tensor a: dtype must not be a number");
  CHECK(tensor_refusal("[]", "[2]", "[0,8]") == "tensor a: dtype must not be an array");
  CHECK(tensor_refusal("\"F33\"", "[2]", "[0,8]") ==
        "tensor a: dtype must be one of F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, "
        "BOOL, F8_E4M3, F8_E5M2; got \"F33\"");
  CHECK(tensor_refusal("\"F32\"", "2", "[0,8]") == "tensor a: shape must not be a number");
  CHECK(tensor_refusal("\"F32\"", "[[2]]", "[0,8]") == "tensor a: shape must not be an array");
  CHECK(tensor_refusal("\"F32\"", "[-2]", "[0,8]") ==
        "tensor a: shape must not be negative; got -2");
  CHECK(tensor_refusal("\"F32\"", "[2.0]", "[0,8]") ==
        "tensor a: shape must be whole numbers; got 2.0");
  CHECK(tensor_refusal("\"F32\"", "[true]", "[0,8]") == "tensor a: shape must not be true");
  CHECK(tensor_refusal("\"F32\"", "[9223372036854775808]", "[0,8]") ==
        "tensor a: shape must be below 2^63; got 9223372036854775808");
  CHECK(tensor_refusal("\"F32\"", "[2]", "8") == "tensor a: data_offsets must not be a number");
  CHECK(tensor_refusal("\"F32\"", "[2]", "[]") ==
        "tensor a: data_offsets must be two numbers; got fewer");
  CHECK(tensor_refusal("\"F32\"", "[2]", "[0]") ==
        "tensor a: data_offsets must be two numbers; got fewer");
  CHECK(tensor_refusal("\"F32\"", "[2]", "[0,8,8]") ==
        "tensor a: data_offsets must be two numbers; got more");
  CHECK(tensor_refusal("\"F32\"", "[2]", "[-1,8]") ==
        "tensor a: data_offsets must not be negative; got -1");
  CHECK(tensor_refusal("\"F32\"", "[2]", R"(["0","8"])") ==
        "tensor a: data_offsets must not be a string");
  CHECK(tensor_refusal("\"F32\"", "[2]", "{}") ==
        "tensor a: data_offsets must be a string, number or array; got an object");
  CHECK(tensor_refusal("\"F32\"", "[2]", "[0,8]") == "accepted");
}

TEST_CASE("safetensors: offsets that do not fit shape and file are refused", "[safetensors]") {
  const std::string within =
      "tensor a: data_offsets must rise and end within the file's 8 bytes of values; got ";
  CHECK(tensor_refusal("\"F32\"", "[2]", "[8,0]") == within + "8 and 0");
  CHECK(tensor_refusal("\"F32\"", "[3]", "[0,12]") == within + "0 and 12");
  CHECK(tensor_refusal("\"F32\"", "[3]", "[0,9223372036854775807]") ==
        within + "0 and 9223372036854775807");
  CHECK(tensor_refusal("\"F32\"", "[3]", "[0,8]") ==
        "tensor a: shape (3) of F32 needs 12 bytes; data_offsets give 8");
  CHECK(tensor_refusal("\"F64\"", "[1,2]", "[0,8]") ==
        "tensor a: shape (1, 2) of F64 needs 16 bytes; data_offsets give 8");
  CHECK(tensor_refusal("\"U8\"", "[4294967296,4294967296]", "[0,0]") ==
        "tensor a: must have fewer than 2^63 bytes; got shape (4294967296, 4294967296) of U8");
  CHECK(tensor_refusal("\"F32\"", "[4611686018427387904,2]", "[0,8]") ==
        "tensor a: must have fewer than 2^63 bytes; got shape (4611686018427387904, 2) of F32");
  CHECK(tensor_refusal("\"U8\"", "[0,4611686018427387904,4]", "[0,0]") ==
        "tensor a: must have fewer than 2^63 bytes; got shape (0, 4611686018427387904, 4) of U8");
  CHECK(tensor_refusal("\"F32\"", "[1]", "[0,4]") ==
        "the tensors must cover the file's 8 bytes of values; they cover 4");
  CHECK(tensor_refusal("\"F32\"", "[1]", "[4,8]") ==
        "tensor a: must begin where the one before ends, at 0; begins at 4 (a hole)");
  const std::string first = R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},"b":)";
  CHECK(header_refusal(first + R"({"dtype":"U8","shape":[4],"data_offsets":[4,8]}})") ==
        "tensor b: must begin where the one before ends, at 5; begins at 4 (they overlap)");
  CHECK(header_refusal(first + R"({"dtype":"U8","shape":[2],"data_offsets":[6,8]}})") ==
        "tensor b: must begin where the one before ends, at 5; begins at 6 (a hole)");
  CHECK(header_refusal("{}", 8) ==
        "the tensors must cover the file's 8 bytes of values; they cover 0");
  CHECK(header_refusal("{}", 0) == "accepted");
}

TEST_CASE("safetensors: a name given twice is refused", "[safetensors]") {
  const std::string tensor = R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  CHECK(header_refusal("{\"a\":" + tensor + ",\"a\":" + tensor + "}") == "tensor a is given twice");
  CHECK(header_refusal(R"({"__metadata__":{},"__metadata__":{}})", 0) ==
        "__metadata__ is given twice");
}

TEST_CASE("safetensors: metadata are strings", "[safetensors]") {
  CHECK(header_refusal(R"({"__metadata__":{"k":1}})", 0) == "__metadata__: k must not be a number");
  CHECK(header_refusal(R"({"__metadata__":{"k":{}}})", 0) ==
        "__metadata__: k must be a string, number or array; got an object");
  CHECK(header_refusal(R"({"__metadata__":{"k":"v","k":"v"}})", 0) ==
        "__metadata__: k is given twice");
  CHECK(header_refusal(R"({"__metadata__":3})", 0) == "__metadata__ must not be a number");
  CHECK(header_refusal(R"({"__metadata__":{"k":"v"}})", 0) == "accepted");
}

TEST_CASE("safetensors: hostile nesting and endless shapes are refused at once", "[safetensors]") {
  CHECK(header_refusal("{\"a\":" + std::string(1'000'000, '[')) == "tensor a must not be an array");
  std::string sizes = "1";
  for (int i = 0; i < 1000; ++i) sizes += ",1";
  CHECK(tensor_refusal("\"U8\"", "[" + sizes + "]", "[0,1]") ==
        "tensor a: shape must have at most 64 sizes");
}

TEST_CASE("safetensors: scalars, empty tensors and tensors listed out of order are valid",
          "[safetensors]") {
  const TemporaryFolder folder;
  const SafetensorsFile file(
      folder.write("f", file_of(R"({"late":{"dtype":"BF16","shape":[1,2],"data_offsets":[4,8]},)"
                                R"("none":{"dtype":"F32","shape":[3,0],"data_offsets":[4,4]},)"
                                R"("one":{"dtype":"I32","shape":[],"data_offsets":[0,4]},)"
                                R"("__metadata__":{"format":"pt"}}   )",
                                8)));
  REQUIRE(file.entries().size() == 3);
  CHECK(file.entries()[0].name == "one");
  CHECK(file.entries()[1].name == "none");
  CHECK(file.entries()[2].name == "late");
  CHECK(file.at("one").dtype == "I32");
  CHECK(file.at("one").shape.empty());
  CHECK(content_of(file.at("one")) == std::string("\0\1\2\3", 4));
  CHECK(file.at("none").shape == std::vector<int64_t>{3, 0});
  CHECK(file.at("none").bytes.empty());
  CHECK(file.at("late").dtype == "BF16");
  CHECK(file.at("late").shape == std::vector<int64_t>{1, 2});
  CHECK(content_of(file.at("late")) == "\4\5\6\7");
  CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
  CHECK(file.has("late"));
  CHECK_FALSE(file.has("early"));
  CHECK(rejection([&] { file.at("early"); }) == file.path() + ": tensor early is missing");
}

TEST_CASE("safetensors: a header of several megabytes is read", "[safetensors]") {
  std::string header = "{";
  for (int i = 0; i < 40'000; ++i) {
    header += (i == 0 ? "\"" : ",\"") + std::string(40, 'n') + std::to_string(i) +
              R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" + std::to_string(i) + "," +
              std::to_string(i + 1) + "]}";
  }
  REQUIRE(header.size() > 3'000'000);
  const TemporaryFolder folder;
  const SafetensorsFile file(folder.write("f", file_of(header + "}", 40'000)));
  CHECK(file.entries().size() == 40'000);
  CHECK(content_of(file.at(std::string(40, 'n') + "258")) == "\2");
}

TEST_CASE("safetensors: a written file has exactly the documented bytes", "[safetensors]") {
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder.file("f"), {{"b", "I32", {1}}, {"a", "F16", {2, 1}}});
  writer.write("b", bytes_of("wxyz"));
  writer.write("a", bytes_of("1234"));
  writer.finish();
  const std::string header = R"({"__metadata__":{"format":"pt"},)"
                             R"("b":{"dtype":"I32","shape":[1],"data_offsets":[0,4]},)"
                             R"("a":{"dtype":"F16","shape":[2,1],"data_offsets":[4,8]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  CHECK(folder.read("f") == length_bytes(padded.size()) + padded + "wxyz1234");
}

TEST_CASE("safetensors: what is written in pieces reads back bit for bit", "[safetensors]") {
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder.file("f"),
                           {{"empty", "F32", {0, 7}},
                            {"model.\"quoted\".\u00fc", "F64", {1, 2}},
                            {"scalar", "I64", {}},
                            {"last", "U8", {0}}},
                           {{"k", "v\n"}});
  writer.write("model.\"quoted\".\u00fc", bytes_of("0123456789"));
  writer.write("model.\"quoted\".\u00fc", bytes_of("abcdef"));
  writer.write("scalar", bytes_of("scalar!!"));
  writer.finish();
  const SafetensorsFile file(folder.file("f"));
  REQUIRE(file.entries().size() == 4);
  CHECK(file.at("empty").shape == std::vector<int64_t>{0, 7});
  CHECK(content_of(file.at("model.\"quoted\".\u00fc")) == "0123456789abcdef");
  CHECK(content_of(file.at("scalar")) == "scalar!!");
  CHECK(file.metadata() == std::map<std::string, std::string>{{"k", "v\n"}});
  CHECK(reinterpret_cast<uintptr_t>(file.entries()[0].bytes.data()) % 8 == 0);
}

TEST_CASE("safetensors: a file that is not finished never appears", "[safetensors]") {
  const TemporaryFolder folder;
  folder.write("f", "old");
  const std::string path = folder.file("f");
  {
    SafetensorsWriter writer(path, {{"a", "U8", {4}}, {"b", "U8", {1}}});
    CHECK_THROWS_WITH(writer.write("b", bytes_of("1")),
                      path +
                          ": tensors must be written whole and in the order announced; got b "
                          "where a must follow");
    writer.write("a", bytes_of("12"));
    CHECK_THROWS_WITH(writer.write("a", bytes_of("345")),
                      path + ": tensor a: at most 2 more bytes must be written; got 3");
    CHECK_THROWS_WITH(
        writer.finish(),
        path + ": every tensor must be written before finish(); 2 bytes of a are missing");
    writer.write("a", bytes_of("34"));
    writer.write("b", bytes_of("5"));
    CHECK_THROWS_WITH(writer.write("c", bytes_of("6")),
                      path +
                          ": tensors must be written whole and in the order announced; got c "
                          "where the end must follow");
  }
  CHECK(folder.read("f") == "old");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);
}

TEST_CASE("safetensors: tensors that no reader would accept are not written", "[safetensors]") {
  const TemporaryFolder folder;
  const std::string path = folder.file("f");
  const auto write = [&](const SafetensorsInfo& tensor) {
    SafetensorsWriter(path, {{"a", "U8", {1}}, tensor});
  };
  CHECK_THROWS_WITH(write({"a", "U8", {1}}), path + ": tensor a: the name is taken already");
  CHECK_THROWS_WITH(write({"__metadata__", "U8", {1}}),
                    path + ": tensor __metadata__: the name is taken already");
  CHECK_THROWS_WITH(write({"b", "f32", {1}}), path + ": tensor b: unknown dtype f32");
  CHECK_THROWS_WITH(write({"b", "U8", {-1}}), path + ": tensor b: impossible shape (-1)");
  CHECK_THROWS_WITH(write({"b", "U8", {int64_t{1} << 62, 2}}),
                    path + ": tensor b: impossible shape (4611686018427387904, 2)");
  CHECK_THROWS_AS(write({"\xff", "U8", {1}}), Error);
  CHECK(std::filesystem::is_empty(folder.path));
}

// A small file as the writer makes it.
std::string sample_file() {
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder.file("f"), {{"wte", "F32", {2, 3}}, {"ln", "BF16", {5}}});
  writer.write("wte", bytes_of("abcdefghijklmnopqrstuvwx"));
  writer.write("ln", bytes_of("0123456789"));
  writer.finish();
  return folder.read("f");
}

TEST_CASE("safetensors: a file cut anywhere is refused", "[safetensors]") {
  const std::string whole = sample_file();
  REQUIRE(refusal_of(whole) == "accepted");
  for (size_t size = 0; size < whole.size(); ++size) {
    INFO("the first " << size << " bytes");
    CHECK(refusal_of(whole.substr(0, size)) != "accepted");
  }
  CHECK(refusal_of(whole.substr(0, whole.size() - 1)) ==
        "tensor ln: data_offsets must rise and end within the file's 33 bytes of values; got 24 "
        "and 34");
  CHECK(refusal_of(whole + "x") ==
        "the tensors must cover the file's 35 bytes of values; they cover 34");
}

TEST_CASE("safetensors: no change of a header byte crashes the reader or leaves the file's bounds",
          "[safetensors]") {
  const TemporaryFolder folder;
  const std::string whole = sample_file();
  const size_t header_end = whole.size() - 34;
  size_t accepted = 0;
  for (size_t at = 0; at < header_end; ++at) {
    for (const char change :
         {'\x00', '\x01', '0', '9', '-', '"', '{', '}', '[', ']', ',', ' ', '\x7f', '\xff'}) {
      std::string changed = whole;
      changed[at] = change;
      const std::string path = folder.write("f", changed);
      const std::string message = rejection([&] {
        const SafetensorsFile file(path);
        for (const SafetensorsEntry& entry : file.entries()) {
          // Touches every byte, which a sanitizer watches.
          for (const std::byte each : entry.bytes) accepted += each == std::byte{'0'};
        }
      });
      CHECK((message == "accepted" || message.starts_with(path + ": ")));
    }
  }
  CHECK(accepted > 0);
}

}  // namespace
}  // namespace xtrain
