// The program `evaluate` as its users see it.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/tolerance.h"
#include "tools/program_runs.h"
#include "train/data/token_bytes.h"
#include "train/eval/multiple_choice_bytes.h"

using namespace xtrain;
using Json = nlohmann::json;

namespace {

// A workplace with a trained run of bytes in the folder "run".
struct Trained : Workplace {
  Finished training;

  explicit Trained(const std::string& settings = "") {
    training = run("train",
                   "--config small.json --out-dir run --set train.eval_steps=0 "
                   "--set train.checkpoint_interval=0 " +
                       settings);
    REQUIRE(training.code == 0);
  }
  Finished evaluate(const std::string& arguments) const {
    return run("evaluate", "--device cpu --threads 1 --model run " + arguments);
  }
  Json json(const std::string& arguments) const {
    const Finished done = evaluate(arguments + " --json");
    INFO(done.err);
    REQUIRE(done.code == 0);
    CHECK(std::count(done.out.begin(), done.out.end(), '\n') == 1);
    return Json::parse(done.out);
  }
  std::string refusal(const std::string& arguments) const {
    const Finished done = evaluate(arguments);
    CHECK(done.code == 2);
    CHECK(done.out == "");
    CHECK(std::count(done.err.begin(), done.err.end(), '\n') == 1);
    return done.err;
  }
};

std::string cycle(size_t size) {
  std::string text;
  while (text.size() < size) text += "the quick brown fox\n";
  return text.substr(0, size);
}

}  // namespace

TEST_CASE("evaluate gives the validation loss that training has given", "[tools]") {
  const Trained place;
  const std::string metrics = place.read("run/metrics.jsonl");
  const Json last = Json::parse(metrics.substr(metrics.rfind('\n', metrics.size() - 2) + 1));
  const Json all = place.json("--stories 2");  // a tenth of 20
  CHECK(all["tokens"] == all["bytes"]);
  const int64_t whole_windows = all["tokens"].get<int64_t>() / 16 * 16;
  const Json windows = place.json("--stories 2 --max-tokens " + std::to_string(whole_windows));
  const double expected = last["val_loss"], loss = windows["loss"];
  CHECK(windows["tokens"] == whole_windows);
  CHECK(std::abs(loss - expected) <= tolerance(Dtype::f32, whole_windows) * expected);
  CHECK(all["floor"] > 0.0);
  CHECK(all["floor"] < all["loss"]);
}

TEST_CASE("evaluate prints a table, or one line of JSON with the same numbers", "[tools]") {
  const Trained place;
  place.write("fox.txt", cycle(300));
  const Json json = place.json("--data fox.txt --stride 4 --batch-size 3");
  CHECK(json["model_type"] == "qwen3");
  CHECK(json["vocabulary"].get<std::string>().ends_with("vocabulary.json"));
  CHECK(json["data_reader"] == "text, bytes as tokens");
  CHECK(json["seq_len"] == 16);
  CHECK(json["stride"] == 4);
  CHECK(json["tokens"] == 299);
  CHECK(json["floor"].is_null());
  const double loss = json["loss"], bits = json["bits_per_byte"];
  CHECK(std::abs(bits - loss / std::log(2.0)) <= tolerance(Dtype::f64) * bits);
  CHECK(std::abs(json["perplexity"].get<double>() - std::exp(loss)) <= 1e-9 * std::exp(loss));
  CHECK_FALSE(json.contains("accuracy"));
  const Finished table = place.evaluate("--data fox.txt --stride 4");
  CHECK(table.code == 0);
  char line[64];
  std::snprintf(line, sizeof line, "\nloss            %.4f nats a token\n", loss);
  CHECK(table.out.find(line) != std::string::npos);
  std::snprintf(line, sizeof line, "\nbits per byte   %.4f\n", bits);
  CHECK(table.out.find(line) != std::string::npos);
}

// The two differ by roundings alone, and where nothing rounds differently not even by those.
TEST_CASE("evaluate says which attention ran, flash unless told otherwise", "[tools]") {
  const Trained place;
  place.write("fox.txt", cycle(300));
  const Json flash = place.json("--data fox.txt --stride 4");
  const Json composed = place.json("--data fox.txt --stride 4 --no-flash");
  CHECK(flash["attention"] == "flash");
  CHECK(composed["attention"] == "composed");
  CHECK(place.json("--data fox.txt --stride 4 --flash") == flash);
  const double loss = flash["loss"];
  CHECK(std::abs(composed["loss"].get<double>() - loss) <= tolerance(Dtype::f32, 16) * loss);
  const Finished table = place.evaluate("--data fox.txt --stride 4 --no-flash");
  CHECK(table.out.find(", f32, composed attention, on cpu with 1 thread\n") != std::string::npos);
}

TEST_CASE("evaluate reads text and every layout of tokens as the same stream", "[tools]") {
  const Trained place;
  const std::string text = cycle(200);
  std::vector<uint16_t> narrow;
  std::vector<int32_t> wide;
  std::vector<bool> counts;
  for (const char c : text) {
    narrow.push_back(static_cast<unsigned char>(c));
    wide.push_back(static_cast<unsigned char>(c));
    counts.push_back(counts.size() >= 100);
  }
  place.write("a.txt", text);
  place.write("raw.bin", packed(narrow));
  place.write("narrow.bin", header(20240520, 1, 200) + packed(narrow));
  place.write("wide.bin", header(20240801, 7, 200) + packed(wide));
  place.write("llmq.bin", llmq_header({2, 4, 200, 256, 0}) + packed(wide));
  const Json expected = place.json("--data a.txt");
  for (const std::string name : {"raw.bin", "narrow.bin", "wide.bin", "llmq.bin"}) {
    INFO(name);
    const Json json = place.json("--data " + name);
    CHECK(json["loss"] == expected["loss"]);
    CHECK(json["tokens"] == 199);
    CHECK(json["bytes"] == 199);
  }
  const Json joined = place.json("--data 'na*.bin' a.txt raw.bin");
  CHECK(joined["tokens"] == 599);
  CHECK(joined["data_reader"] ==
        "tokens, headered uint16 (magic 20240520, version 1); text, bytes as tokens; tokens, raw "
        "uint16");
  // Of two halves, the second alone: together with the first it is the whole.
  place.write("masked.bin", llmq_header({2, 4, 200, 256, 1}) + packed(wide) + packed_bits(counts));
  const Json second = place.json("--data masked.bin");
  const Json first = place.json("--data a.txt --max-tokens 99");
  CHECK(second["tokens"] == 100);
  const double sum = second["loss"].get<double>() * 100 + first["loss"].get<double>() * 99;
  const double whole = expected["loss"].get<double>() * 199;
  CHECK(std::abs(sum - whole) <= tolerance(Dtype::f64, 200) * whole);
}

TEST_CASE("evaluate scores the same examples in both layouts alike", "[tools]") {
  const Trained place;
  std::string lines;
  std::vector<ExampleWords> words;
  for (int i = 0; i < 12; ++i) {
    const std::string context = "Once upon a ti" + std::string(1, static_cast<char>('a' + i));
    const std::vector<std::string> choices{" me", " the qui", " ox"};
    MultipleChoiceExample example{{context.begin(), context.end()}, {}, i % 3, ""};
    for (const std::string& choice : choices) {
      example.choices.emplace_back(choice.begin(), choice.end());
    }
    words.push_back(example_words(example, i));
    lines += Json{{"context", context}, {"choices", choices}, {"label", i % 3}}.dump() + "\n";
  }
  place.write("e.jsonl", lines);
  place.write("e.bin", eval_file(words));
  const Json binary = place.json("--multiple-choice e.bin");
  const Json text = place.json("--multiple-choice e.jsonl --batch-size 5");
  for (const char* key : {"examples", "accuracy", "accuracy_norm", "chance", "cut"}) {
    INFO(key);
    CHECK(binary[key] == text[key]);
  }
  CHECK(binary["examples"] == 12);
  CHECK(binary["cut"] == 12);  // 15 + 8 bytes, of which the model sees 16
  CHECK(binary["accuracy"] > 0.0);
  CHECK(binary["accuracy"] < 1.0);
  CHECK_FALSE(binary.contains("loss"));
  const Finished table = place.evaluate("--multiple-choice e.bin --stories 1");
  CHECK(table.out.find("\nnote            the contexts of 12 examples are longer than 16 tokens") !=
        std::string::npos);
  CHECK(table.out.find("\nloss ") != std::string::npos);
}

TEST_CASE("evaluate leaves padding of the model's vocabulary out", "[tools]") {
  const Trained place("--set model.vocab_size=300");
  const Json json = place.json("--stories 1");
  CHECK(json["vocab_size"] == 256);
  CHECK(json["padding"] == 44);
  place.write("t.bin", packed(std::vector<uint16_t>{1, 2, 256, 3}));
  CHECK(place.refusal("--data t.bin") ==
        "evaluate: t.bin: token 2 has id 256; ids must lie in 0..255 (vocab_size 256)\n");
}

TEST_CASE("evaluate refuses what it cannot use, in one line", "[tools]") {
  const Trained place;
  place.write("empty.txt", "");
  place.write("one.txt", "x");
  place.write("fox.txt", cycle(100));
  place.write("odd.bin", "abc");
  place.write("bad.jsonl", "{}\n");
  CHECK(place.refusal("") ==
        "evaluate: nothing to evaluate on; give --data FILES, --stories N or --multiple-choice "
        "FILE\n");
  CHECK(place.refusal("--data empty.txt") ==
        "evaluate: empty.txt: holds 0 tokens; a loss needs 2, one to predict from another\n");
  CHECK(place.refusal("--data one.txt").find("holds 1 tokens") != std::string::npos);
  CHECK(place.refusal("--data fox.txt empty.txt") ==
        "evaluate: empty.txt: holds no tokens; remove it from the list\n");
  CHECK(place.refusal("--data odd.bin") ==
        "evaluate: odd.bin: raw uint16 tokens need an even number of bytes; found 3\n");
  CHECK(place.refusal("--data run").find("is a directory") != std::string::npos);
  CHECK(place.refusal("--data none.txt").find("No such file") != std::string::npos);
  CHECK(place.refusal("--data fox.txt --seq-len 17") ==
        "evaluate: seq_len must lie in 1..16, the model's max_position_embeddings; got 17\n");
  CHECK(place.refusal("--data fox.txt --stride 17") ==
        "evaluate: stride must lie in 1..16, the tokens of a window; got 17\n");
  CHECK(place.refusal("--data fox.txt --batch-size 0").starts_with("evaluate: --batch-size: "));
  CHECK(place.refusal("--data fox.txt --max-tokens -1").starts_with("evaluate: --max-tokens: "));
  CHECK(place.refusal("--data fox.txt --dtype i32") ==
        "evaluate: --dtype must be f64, f32 or bf16; got i32\n");
  CHECK(place.refusal("--data fox.txt --flash --no-flash").find("flash") != std::string::npos);
  CHECK(place.refusal("--data fox.txt --format zip") ==
        "evaluate: format must be auto, text, raw_u16 or headered; got \"zip\"\n");
  CHECK(place.refusal("--data fox.txt --format headered")
            .starts_with("evaluate: fox.txt: a headered token file must begin with magic"));
  CHECK(
      place.refusal("--stories 0").starts_with("evaluate: stories: their number must lie in 1.."));
  CHECK(place.refusal("--multiple-choice bad.jsonl") ==
        "evaluate: bad.jsonl:1: must have \"context\"\n");
  CHECK(place.refusal("--multiple-choice empty.txt") == "evaluate: empty.txt: holds no examples\n");
  CHECK(place.refusal("--data fox.txt --model nowhere").starts_with("evaluate: "));
  CHECK(place.run("evaluate", "--data fox.txt").err ==
        "evaluate: --model is required; see --help\n");
  CHECK(place.run("evaluate", "--help").code == 0);
}

TEST_CASE("evaluate with tokens of a model without tokenizer knows no bytes", "[tools]") {
  const Workplace place;
  place.write("ids.bin", packed(counting<uint16_t>(400, 50)));
  REQUIRE(place
              .run("train",
                   "--config small.json --out-dir run --data ids.bin --set model.vocab_size=50 "
                   "--set train.num_samples=0")
              .code == 0);
  const Finished done = place.run("evaluate", "--model run --data ids.bin --json --device cpu");
  REQUIRE(done.code == 0);
  const Json json = Json::parse(done.out);
  CHECK(json["vocabulary"].get<std::string>().ends_with("vocabulary.json"));
  CHECK(json["tokens"] == 399);
  CHECK(json["bytes"].is_null());
  CHECK(json["bits_per_byte"].is_null());
  place.write("a.txt", "text");
  CHECK(place.run("evaluate", "--model run --data a.txt --device cpu").err ==
        "evaluate: a.txt: is text, and the model has no tokenizer to encode it with; give files "
        "of tokens\n");
}

TEST_CASE("evaluate fails where its output cannot be written", "[tools]") {
  const Trained place;
  const Finished full =
      place.shell("'" XT_PROGRAM_DIR "/evaluate' --model run --stories 1 --device cpu >/dev/full");
  CHECK(full.code == 1);
  CHECK(full.err == "evaluate: standard output cannot be written; some of it is lost\n");
}
