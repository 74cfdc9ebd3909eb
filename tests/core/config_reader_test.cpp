#include "core/config_reader.h"

#include <limits>

#include "core/config_writer.h"
#include "support/catch.h"
#include "support/rejection.h"
#include "support/temporary_folder.h"

namespace xtrain {
namespace {

enum class Color { red, green };

struct Sample {
  int64_t layers = 2;
  double rate = 0.5;
  bool fused = true;
  std::string folder = "out";
  Color color = Color::red;
  std::vector<std::string> files;
  std::optional<int64_t> top;
  std::optional<double> floor;
  double first_drop = 0, second_drop = 0;

  bool operator==(const Sample&) const = default;
};

std::vector<ConfigSection> sections(Sample& s) {
  const EnumNames<Color> colors{{Color::red, "red"}, {Color::green, "green"}};
  return {
      {"model",
       {config_field("layers", s.layers, from_to(1, 100), "blocks").alias("n_layer"),
        config_field("color", s.color, colors, "of the blocks"),
        config_field("first_drop", s.first_drop, at_least(0).below(1), "probability").alias("drop"),
        config_field("second_drop", s.second_drop, at_least(0).below(1), "probability")
            .alias("drop")}},
      {"train",
       {config_field("rate", s.rate, above(0), "step size"),
        config_field("fused", s.fused, "fat nodes"), config_field("folder", s.folder, "output"),
        config_field("files", s.files, "inputs"),
        config_field("top", s.top, from_to(1, 10), "candidates"),
        config_field("floor", s.floor, at_least(0).at_most(1), "least rate")}}};
}

Sample read(const std::string& json) {
  ConfigReader reader;
  reader.add_json(json, "f.json");
  Sample s;
  reader.read(sections(s));
  return s;
}

std::string refusal(const std::string& json) {
  return rejection([&] { read(json); });
}

std::string layers_refusal(const std::string& value) {
  return refusal(R"({"model": {"layers": )" + value + "}}");
}

std::string rate_refusal(const std::string& value) {
  return refusal(R"({"train": {"rate": )" + value + "}}");
}

Sample read_set(const std::vector<std::string>& assignments) {
  ConfigReader reader;
  for (const std::string& each : assignments) reader.set(each);
  Sample s;
  reader.read(sections(s));
  return s;
}

std::string set_refusal(const std::string& assignment) {
  return rejection([&] { read_set({assignment}); });
}

TEST_CASE("config: every type is read", "[config_reader]") {
  const Sample s = read(R"({"model": {"layers": 7, "color": "green"},
    "train": {"rate": 1, "fused": false, "folder": "x y", "files": ["a", "b"], "top": 3,
              "floor": 0.25}})");
  CHECK(s.layers == 7);
  CHECK(s.color == Color::green);
  CHECK(s.rate == 1.0);
  CHECK_FALSE(s.fused);
  CHECK(s.folder == "x y");
  CHECK(s.files == std::vector<std::string>{"a", "b"});
  CHECK(s.top == 3);
  CHECK(s.floor == 0.25);
}

TEST_CASE("config: keys that are not given keep their values, null clears an optional one",
          "[config_reader]") {
  CHECK(read("{}") == Sample{});
  CHECK(read(R"({"model": {}})") == Sample{});
  CHECK(read(R"({"train": {"top": null}})").top == std::nullopt);
}

TEST_CASE("config: an integer key refuses every other value by name", "[config_reader]") {
  const std::string must = "f.json: model.layers must be an integer from 1 to 100; got ";
  CHECK(layers_refusal("2.7") == must + "2.7");
  CHECK(layers_refusal("2.0") == must + "2.0");
  CHECK(layers_refusal("-1") == must + "-1");
  CHECK(layers_refusal("0") == must + "0");
  CHECK(layers_refusal("101") == must + "101");
  CHECK(layers_refusal("4294967298") == must + "4294967298");
  CHECK(layers_refusal("18446744073709551615") == must + "18446744073709551615");
  CHECK(layers_refusal("18446744073709551617") == must + "1.8446744073709552e+19");
  CHECK(layers_refusal("\"64\"") == must + "\"64\"");
  CHECK(layers_refusal("true") == must + "true");
  CHECK(layers_refusal("null") == must + "null");
  CHECK(layers_refusal("[]") == must + "[]");
  CHECK(layers_refusal("[4]") == must + "an array");
  CHECK(layers_refusal("{}") == must + "an object");
}

TEST_CASE("config: a number key refuses other values and numbers out of range", "[config_reader]") {
  CHECK(rate_refusal("\"x\"") == "f.json: train.rate must be a number > 0; got \"x\"");
  CHECK(rate_refusal("0") == "f.json: train.rate must be a number > 0; got 0");
  CHECK(rate_refusal("true") == "f.json: train.rate must be a number > 0; got true");
  CHECK(rate_refusal("1e400") == "f.json:1:25: not valid JSON: number overflow parsing '1e400'");
  CHECK(rate_refusal("NaN").starts_with("f.json:1:20: not valid JSON: syntax error"));
  CHECK(rate_refusal("Infinity").starts_with("f.json:1:20: not valid JSON: syntax error"));
  CHECK(rate_refusal("1") == "accepted");
  CHECK(refusal(R"({"model": {"first_drop": 1}})") ==
        "f.json: model.first_drop must be a number >= 0 and < 1; got 1");
  CHECK(refusal(R"({"train": {"floor": 1.5}})") ==
        "f.json: train.floor must be a number >= 0 and <= 1, or null; got 1.5");
  CHECK(refusal(R"({"train": {"floor": 1}})") == "accepted");
}

TEST_CASE("config: the other types refuse what is not theirs", "[config_reader]") {
  CHECK(refusal(R"({"train": {"fused": 1}})") ==
        "f.json: train.fused must be true or false; got 1");
  CHECK(refusal(R"({"train": {"folder": 1}})") == "f.json: train.folder must be a string; got 1");
  CHECK(refusal(R"({"train": {"files": "a"}})") ==
        "f.json: train.files must be an array of strings; got \"a\"");
  CHECK(refusal(R"({"train": {"files": ["a", 1]}})") ==
        "f.json: train.files must be an array of strings; got an array");
  CHECK(refusal(R"({"train": {"top": 11}})") ==
        "f.json: train.top must be an integer from 1 to 10, or null; got 11");
  CHECK(refusal(R"({"model": {"color": "blue"}})") ==
        "f.json: model.color must be one of red, green; got \"blue\"");
  CHECK(refusal(R"({"model": {"color": 0}})") ==
        "f.json: model.color must be one of red, green; got 0");
}

TEST_CASE("config: unknown names are refused with the nearest known one", "[config_reader]") {
  CHECK(refusal(R"({"model": {"layer": 1}})") ==
        "f.json: unknown key model.layer; did you mean model.layers?");
  CHECK(refusal(R"({"model": {"n_layers": 1}})") ==
        "f.json: unknown key model.n_layers; did you mean model.n_layer?");
  CHECK(refusal(R"({"model": {"rate": 1}})") ==
        "f.json: unknown key model.rate; did you mean train.rate?");
  CHECK(refusal(R"({"modle": {"layers": 1}})") ==
        "f.json: unknown section \"modle\"; did you mean \"model\"?");
  CHECK(refusal(R"({"modle": {}})") ==
        "f.json: unknown section \"modle\"; did you mean \"model\"?");
  CHECK(refusal(R"({"n_layer": 1})") == "f.json: key \"n_layer\" must stand in section \"model\"");
  CHECK(refusal(R"({"model": 3})") == "f.json: section \"model\" must be an object of keys; got 3");
  CHECK(refusal(R"({"model": {"": {}}})") ==
        "f.json: unknown key model.; did you mean model.drop?");
  CHECK(set_refusal("train.rat=1") ==
        "--set train.rat=1: unknown key train.rat; did you mean train.rate?");
}

TEST_CASE("config: malformed JSON is refused with its line and column", "[config_reader]") {
  CHECK(refusal("{\"model\": {\n  \"layers\": 3,\n}}")
            .starts_with("f.json:3:1: not valid JSON: syntax error while parsing object key"));
  CHECK(refusal("") == "f.json: must hold a JSON object of sections; got an empty file");
  CHECK(refusal(" \n") == "f.json: must hold a JSON object of sections; got an empty file");
  CHECK(refusal("[]") == "f.json: must hold a JSON object of sections; got []");
  CHECK(refusal("[{}]") == "f.json: must hold a JSON object of sections; got an array");
  CHECK(refusal("3") == "f.json: must hold a JSON object of sections; got 3");
  CHECK(refusal("{\"model\": {\"layers\": 1}").starts_with("f.json:1:23: not valid JSON"));
  CHECK(refusal("{} {}").starts_with("f.json:1:4: not valid JSON"));
  CHECK(refusal("{\n// why\n}").starts_with("f.json:2:1: not valid JSON"));
  CHECK(refusal("{\"a\xff\": 1}").starts_with("f.json:1:4: not valid JSON"));
  CHECK(refusal(std::string(100'000, '[')).starts_with("f.json:1:18: nested deeper than"));
}

TEST_CASE("config: a key given twice is refused", "[config_reader]") {
  CHECK(refusal("{\"model\": {\"layers\": 1,\n \"layers\": 1}}") ==
        "f.json:2:9: key \"layers\" is given twice");
  CHECK(refusal("{\"model\": {},\n\"model\": {}}") == "f.json:2:7: key \"model\" is given twice");
  CHECK(refusal(R"({"model": {"layers": 1, "n_layer": 1}})") ==
        "f.json: model.n_layer is another name of a key that is given too; give one of them");
  CHECK(refusal(R"({"model": {"layers": 1}, "train": {"rate": 1}})") == "accepted");
}

TEST_CASE("config: a byte order mark at the start is skipped", "[config_reader]") {
  CHECK(read("\xEF\xBB\xBF{\"model\": {\"layers\": 9}}").layers == 9);
  CHECK(refusal("\xEF\xBB\xBF{,}").starts_with("f.json:1:2:"));
  CHECK(refusal("\xEF\xBB\xBF") ==
        "f.json: must hold a JSON object of sections; got an empty file");
}

TEST_CASE("config: an alias sets its key, a shared one sets all its keys", "[config_reader]") {
  CHECK(read(R"({"model": {"n_layer": 5}})").layers == 5);
  const Sample both = read(R"({"model": {"drop": 0.25}})");
  CHECK(both.first_drop == 0.25);
  CHECK(both.second_drop == 0.25);
  for (const char* json : {R"({"model": {"drop": 0.25, "second_drop": 0.5}})",
                           R"({"model": {"second_drop": 0.5, "drop": 0.25}})"}) {
    CHECK(read(json).first_drop == 0.25);
    CHECK(read(json).second_drop == 0.5);
  }
}

TEST_CASE("config: later sources win, key by key", "[config_reader]") {
  ConfigReader reader;
  reader.add_json(R"({"model": {"layers": 3, "second_drop": 0.5}, "train": {"rate": 0.1}})", "a");
  reader.set("train", "rate", "0.2", "--rate");
  reader.set("model.n_layer=4");
  reader.set("model.drop=0.125");
  Sample s;
  reader.read(sections(s));
  CHECK(s.layers == 4);
  CHECK(s.rate == 0.2);
  CHECK(s.second_drop == 0.125);
}

TEST_CASE("config: settings are read by the type of their key", "[config_reader]") {
  const Sample s =
      read_set({"model.layers=12", "train.rate=3e-4", "train.fused=false", "train.folder=7",
                "model.color=green", "train.top=null", "train.files=a=b,c"});
  CHECK(s.layers == 12);
  CHECK(s.rate == 3e-4);
  CHECK_FALSE(s.fused);
  CHECK(s.folder == "7");
  CHECK(s.color == Color::green);
  CHECK(s.files == std::vector<std::string>{"a=b,c"});
  CHECK(read_set({"train.files=[\"a\", \"b\"]"}).files == std::vector<std::string>{"a", "b"});
  CHECK(read_set({"train.folder="}).folder.empty());
}

TEST_CASE("config: settings of the wrong form or type are refused", "[config_reader]") {
  const std::string form = ": must have the form section.key=value";
  for (const char* each :
       {"", "model", "model.layers", "layers=1", "=1", ".layers=1", "model.=1"}) {
    CHECK(set_refusal(each) == std::string("--set ") + each + form);
  }
  CHECK(set_refusal("model.layers=12x") ==
        "--set model.layers=12x: model.layers must be an integer from 1 to 100; got \"12x\"");
  CHECK(set_refusal("model.layers=") ==
        "--set model.layers=: model.layers must be an integer from 1 to 100; got \"\"");
  CHECK(set_refusal("model.layers=1e1") ==
        "--set model.layers=1e1: model.layers must be an integer from 1 to 100; got 10.0");
  CHECK(set_refusal("train.rate=1e400") ==
        "--set train.rate=1e400: train.rate must be a number > 0; got \"1e400\"");
  CHECK(set_refusal("train.fused=yes") ==
        "--set train.fused=yes: train.fused must be true or false; got \"yes\"");
  CHECK(set_refusal("train.files=[1]") ==
        "--set train.files=[1]: train.files must be an array of strings; got an array");
  CHECK(set_refusal("train.folder=\xff") ==
        "--set train.folder=\xff: the value must be valid UTF-8");
}

TEST_CASE("config: a required key must come from some source", "[config_reader]") {
  Sample s;
  const std::vector<ConfigSection> needed{
      {"model",
       {config_field("layers", s.layers, from_to(1, 9), "blocks").alias("n_layer").require()}}};
  ConfigReader reader;
  CHECK(rejection([&] { reader.read(needed); }) ==
        "config: model.layers is required and missing; give an integer from 1 to 9");
  reader.add_json(R"({"model": {}})", "f.json");
  CHECK(rejection([&] { reader.read(needed); }) ==
        "f.json: model.layers is required and missing; give an integer from 1 to 9");
  reader.set("model.n_layer=3");
  CHECK(rejection([&] { reader.read(needed); }) == "accepted");
  CHECK(s.layers == 3);
  CHECK(reader.has("model", "n_layer"));
  CHECK_FALSE(reader.has("model", "layers"));
}

TEST_CASE("config: what is written reads back to the same values", "[config_reader]") {
  Sample s;
  s.layers = 3;
  s.rate = 0.1 + 0.2;
  s.fused = false;
  s.folder = "a \"quoted\" \\ f\u00f6lder\n";
  s.color = Color::green;
  s.files = {"x", ""};
  s.floor = 1e-300 / 3;
  const std::string json = config_to_json(sections(s));
  CHECK(read(json) == s);
  CHECK(config_to_json(sections(s)) == json);
}

TEST_CASE("config: the written form is stable and in the order of the description",
          "[config_reader]") {
  Sample s;
  CHECK(config_to_json(sections(s)) == R"({
  "model": {
    "layers": 2,
    "color": "red",
    "first_drop": 0.0,
    "second_drop": 0.0
  },
  "train": {
    "rate": 0.5,
    "fused": true,
    "folder": "out",
    "files": [],
    "top": null,
    "floor": null
  }
}
)");
}

TEST_CASE("config: tables list key, values, default, meaning and aliases", "[config_reader]") {
  Sample s;
  const std::vector<ConfigSection> table{
      {"model",
       {config_field("layers", s.layers, from_to(1, 9), "blocks").alias("n_layer").require(),
        config_field("rate", s.rate, above(0), "step size").default_is("1 / layers"),
        config_field("old", s.fused, "gone").read_only()}}};
  CHECK(config_to_markdown(table) == R"(## model

| key | value | default | meaning | also read as |
|---|---|---|---|---|
| layers | an integer from 1 to 9 | required | blocks | n_layer |
| rate | a number > 0 | 1 / layers | step size |  |
| old | true or false | true | gone |  |

)");
  CHECK(config_to_help({{"model", {table[0].fields[0]}}}) ==
        "  model.layers = required\n      blocks (an integer from 1 to 9)\n");
  CHECK(config_to_json(table) ==
        "{\n  \"model\": {\n    \"layers\": 2,\n    \"rate\": 0.5\n  }\n}\n");
}

TEST_CASE("config: values set by a program are checked against the same ranges",
          "[config_reader]") {
  Sample s;
  const auto refusal_now = [&] {
    return rejection([&] {
      for (const ConfigSection& section : sections(s)) check_ranges(section);
    });
  };
  CHECK(refusal_now() == "accepted");
  s.layers = 101;
  CHECK(refusal_now() == "model.layers must be an integer from 1 to 100; got 101");
  s.layers = 100;
  s.top = 0;
  CHECK(refusal_now() == "train.top must be an integer from 1 to 10, or null; got 0");
  s.top = std::nullopt;
  s.rate = std::numeric_limits<double>::infinity();
  CHECK(refusal_now() == "train.rate must be a number > 0; got inf");
  s.rate = std::numeric_limits<double>::quiet_NaN();
  CHECK(refusal_now() == "train.rate must be a number > 0; got nan");
  s.rate = 1;
  uint64_t seed = uint64_t{1} << 63;
  const ConfigSection seeds{"s", {config_field("seed", seed, from_to(0, 9), "start")}};
  CHECK(rejection([&] { check_ranges(seeds); }) ==
        "s.seed must be an integer from 0 to 9; got 9223372036854775808");
  ConfigReader reader;
  reader.set("s.seed=7");
  reader.read({seeds});
  CHECK(seed == 7);
}

TEST_CASE("config: what a key must be can be said in words", "[config_reader]") {
  Sample s;
  ConfigReader reader;
  reader.set("s.layers=x");
  const ConfigSection section{
      "s", {config_field("layers", s.layers, from_to(1, 9), "blocks").expect("an odd integer")}};
  CHECK(rejection([&] { reader.read({section}); }) ==
        "--set s.layers=x: s.layers must be an odd integer; got \"x\"");
}

TEST_CASE("config: files that are not configs are refused by their path", "[config_reader]") {
  const TemporaryFolder folder;
  const auto refusal_of = [](const std::string& path) {
    return rejection([&] { ConfigReader().add_file(path); });
  };
  const std::string directory = folder.path.string();
  CHECK(refusal_of(directory) == directory + ": must be a config file; got a directory");
  CHECK(refusal_of(directory + "/none.json") ==
        directory + "/none.json: cannot open the config file: No such file or directory");
  const std::string empty = folder.write("empty.json", "");
  CHECK(refusal_of(empty) == empty + ": must hold a JSON object of sections; got an empty file");
  const std::string large = folder.write("large.json", std::string((16 << 20) + 1, ' '));
  CHECK(refusal_of(large) ==
        large + ": must be a config of at most 16777216 bytes; the file is longer");
  const std::string good = folder.write("good.json", R"({"model": {"layers": 8}})");
  ConfigReader reader;
  reader.add_file(good);
  Sample s;
  reader.read(sections(s));
  CHECK(s.layers == 8);
}

TEST_CASE("config: a name is looked up here, then among the installed configs", "[config_reader]") {
  const TemporaryFolder folder;
  const std::string tiny = folder.write("tiny.json", "{}");
  folder.write("notes.txt", "");
  const std::vector<std::string> directories{(folder.path / "none").string(), folder.path.string()};
  CHECK(find_config(tiny, {}) == tiny);
  CHECK(find_config("tiny.json", directories) == tiny);
  CHECK(find_config("configs/tiny.json", directories) == tiny);
  CHECK(find_config("tiny", directories) == tiny);
  CHECK(rejection([&] { find_config("tony.json", directories); }) ==
        "tony.json: no such config file; installed configs: tiny.json");
  CHECK(rejection([&] { find_config("/tiny.json", directories); }) ==
        "/tiny.json: no such config file; installed configs: tiny.json");
  CHECK(rejection([&] { find_config("tony.json", {}); }) ==
        "tony.json: no such config file; installed configs: none");
}

}  // namespace
}  // namespace xtrain
