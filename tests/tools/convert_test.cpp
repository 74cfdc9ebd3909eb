// convert as its users see it, and the conversions behind it.

#include <filesystem>
#include <map>

#include "core/error.h"
#include "model/hf/element_types.h"
#include "model/model_folder.h"
#include "support/catch.h"
#include "tools/model_conversion.h"
#include "tools/program_runs.h"

using namespace xtrain;
namespace fs = std::filesystem;

namespace {

const std::string kGolden = XT_SOURCE_DIR "/tests/golden/transformers/";

// Name to content of every file of a folder.
std::map<std::string, std::string> files_in(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::ifstream in(entry.path(), std::ios::binary);
    files[entry.path().filename().string()] = {std::istreambuf_iterator<char>(in), {}};
  }
  return files;
}

struct Values {
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
  bool operator==(const Values&) const = default;
};

std::map<std::string, Values> tensors_in(const fs::path& folder) {
  std::map<std::string, Values> tensors;
  const TensorFiles files(folder.string());
  for (const auto& [name, entry] : files.entries()) {
    tensors[name] = {entry->dtype, entry->shape, {entry->bytes.begin(), entry->bytes.end()}};
  }
  return tensors;
}

// A folder with a model of one layout in it, as transformers has written it, and programs to run.
struct Models : Workplace {
  explicit Models(const std::string& layout) {
    fs::create_directory(path / "theirs");
    for (const auto& [name, content] : files_in(kGolden + layout)) {
      if (name != "logits.safetensors") write("theirs/" + name, content);
    }
  }
  std::string out(const std::string& name) const { return file(name); }
  void convert(const std::string& arguments) const {
    const Finished done = run("convert", arguments);
    INFO(arguments << ": " << done.err);
    REQUIRE(done.code == 0);
  }
};

void write_tensor(const std::string& path, const std::vector<float>& values) {
  SafetensorsWriter writer(path, {{"x", "F32", {static_cast<int64_t>(values.size())}}});
  writer.write("x", std::as_bytes(std::span(values)));
  writer.finish();
}

bool one_line(const std::string& text) {
  return !text.empty() && text.find('\n') == text.size() - 1;
}

}  // namespace

TEST_CASE("imported and exported again a model has the same values, bit for bit",
          "[tools][convert]") {
  for (const std::string layout : {"gpt2", "llama", "qwen2", "qwen3"}) {
    INFO(layout);
    const Models place(layout);
    place.convert("import theirs own");
    place.convert("export own back");
    CHECK(tensors_in(place.path / "back") == tensors_in(place.path / "theirs"));
    CHECK(tensors_in(place.path / "own") != tensors_in(place.path / "theirs"));
    CHECK(ModelFolder(place.out("own")).config() == ModelFolder(place.out("theirs")).config());
    CHECK(ModelFolder(place.out("back")).config() == ModelFolder(place.out("theirs")).config());
    // Every time the same bytes.
    place.convert("export own again");
    CHECK(files_in(place.path / "again") == files_in(place.path / "back"));
    // In shards, and merged.
    place.convert("export own shards --max-shard-size 3KB");
    CHECK(files_in(place.path / "shards").size() > 6);
    CHECK(tensors_in(place.path / "shards") == tensors_in(place.path / "theirs"));
    place.convert("merge shards merged");
    CHECK(files_in(place.path / "merged") == files_in(place.path / "back"));
  }
}

TEST_CASE("values are rounded once to the dtype asked for", "[tools][convert]") {
  const Models place("qwen2");
  for (const std::string dtype : {"f32", "bf16", "f16", "f64"}) {
    INFO(dtype);
    place.convert("export theirs " + dtype + " --dtype " + dtype);
    place.convert("cast theirs cast_" + dtype + " --dtype " + dtype);
    CHECK(tensors_in(place.path / dtype) == tensors_in(place.path / ("cast_" + dtype)));
    const std::string config = place.read(dtype + "/config.json");
    const std::string torch = dtype == "bf16" ? "bfloat16" : "float" + dtype.substr(1);
    CHECK(config.find("\"torch_dtype\": \"" + torch + "\"") != std::string::npos);
    CHECK(place.read("cast_" + dtype + "/config.json").find("\"dtype\": \"" + torch + "\"") !=
          std::string::npos);
  }
  CHECK(tensors_in(place.path / "f32") == tensors_in(place.path / "theirs"));
  // f64 and back loses nothing.
  place.convert("cast f64 again --dtype f32");
  CHECK(tensors_in(place.path / "again") == tensors_in(place.path / "theirs"));
}

TEST_CASE("cast rewrites any tensors, and refuses values that half precision lacks",
          "[tools][convert]") {
  const Workplace place;
  fs::create_directory(place.path / "in");
  write_tensor(place.file("in/model.safetensors"), {1.0f, 65504.0f, -0.1f});
  REQUIRE(place.run("convert", "cast in out --dtype f16").code == 0);
  const Values half = tensors_in(place.path / "out").at("x");
  CHECK(half.dtype == "F16");
  CHECK(half.bytes == std::vector<std::byte>{std::byte{0x00}, std::byte{0x3C}, std::byte{0xFF},
                                             std::byte{0x7B}, std::byte{0x66}, std::byte{0xAE}});
  write_tensor(place.file("in/model.safetensors"), {1.0f, 65520.0f});
  const Finished refused = place.run("convert", "cast in big --dtype f16");
  CHECK(refused.code == 1);
  CHECK(refused.err ==
        "convert: tensor x: has a value that is too large for F16; use another dtype\n");
  CHECK_FALSE(fs::exists(place.path / "big"));
  CHECK_FALSE(fs::exists(place.path / "big.partial"));
}

TEST_CASE("a run is exported without the rows of padding", "[tools][convert]") {
  const Workplace place;
  const std::string train =
      "--config small.json --max-steps 1 --set model.vocab_size=300 --set train.num_samples=0 "
      "--set train.eval_interval=0 --out-dir run";
  REQUIRE(place.run("train", train).code == 0);
  const Finished done = place.run("convert", "export run out");
  REQUIRE(done.code == 0);
  CHECK(done.err ==
        "convert: note: the vocabulary has 256 tokens and the model 300 rows for them; the last 44 "
        "are padding and are left out\n");
  const auto tensors = tensors_in(place.path / "out");
  CHECK(tensors.at("model.embed_tokens.weight").shape == std::vector<int64_t>{256, 16});
  CHECK(tensors.at("lm_head.weight").shape == std::vector<int64_t>{256, 16});
  CHECK(ModelFolder(place.file("out")).config().vocab_size == 256);
  CHECK(fs::exists(place.path / "out/tokenizer.json"));
  REQUIRE(place.run("convert", "export run whole --keep-padding").err.empty());
  const auto whole = tensors_in(place.path / "whole");
  const Values &cut = tensors.at("lm_head.weight"), &all = whole.at("lm_head.weight");
  CHECK(all.shape == std::vector<int64_t>{300, 16});
  CHECK(std::equal(cut.bytes.begin(), cut.bytes.end(), all.bytes.begin()));
  // The export starts a run, which reads text as the first one did.
  REQUIRE(place
              .run("train",
                   "--init out --max-steps 1 --set data.stories_count=20 --out-dir tuned "
                   "--set train.num_samples=0 --set train.eval_interval=0")
              .code == 0);
  CHECK(place.read("tuned/vocabulary.json") == place.read("run/vocabulary.json"));
}

TEST_CASE("files beside the tensors go along", "[tools][convert]") {
  const Models place("llama");
  place.write("theirs/generation_config.json", R"({"eos_token_id": [3, 4], "top_k": 9})");
  place.write("theirs/tokenizer_config.json", R"({"eos_token": "x"})");
  place.write("theirs/README.md", "read me");
  place.write("theirs/pytorch_model.bin", "weights");
  place.convert("import theirs own");
  place.convert("export own back");
  for (const char* name : {"generation_config.json", "tokenizer_config.json"}) {
    CHECK(place.read(std::string("back/") + name) == place.read(std::string("theirs/") + name));
  }
  CHECK(place.read("back/config.json").find("\"eos_token_id\": [\n    3,") != std::string::npos);
  // A tokenizer of a kind that is not known here is no reason to refuse.
  place.write("theirs/tokenizer.json", R"({"model": {"type": "Unigram"}})");
  place.convert("export theirs unknown");
  CHECK(place.read("unknown/tokenizer.json") == place.read("theirs/tokenizer.json"));
  CHECK(place.run("convert", "import theirs refused").code == 2);
  CHECK_FALSE(fs::exists(place.path / "refused"));
  place.convert("cast theirs cast --dtype bf16");
  CHECK(place.read("cast/README.md") == "read me");
  CHECK_FALSE(fs::exists(place.path / "cast/pytorch_model.bin"));
}

TEST_CASE("inspect says what a folder or a file holds", "[tools][convert]") {
  const Models place("gpt2");
  const Finished folder = place.run("convert", "inspect theirs");
  CHECK(folder.code == 0);
  CHECK(folder.out.find("theirs: Hugging Face layout, gpt2\n") == 0);
  CHECK(folder.out.find("\n6992 parameters\n") != std::string::npos);
  CHECK(folder.out.find("\"hidden_size\": 16") != std::string::npos);
  CHECK(folder.out.find("  transformer.wte.weight  F32  13 x 16  832 bytes\n") !=
        std::string::npos);
  CHECK(folder.out.find("\n28 tensors, 27968 bytes\n") != std::string::npos);
  const Finished file = place.run("convert", "inspect theirs/model.safetensors");
  CHECK(file.code == 0);
  CHECK(file.out.find("28 tensors, 27968 bytes") != std::string::npos);
}

TEST_CASE("keys that are passed over are told", "[tools][convert]") {
  const Models place("llama");
  std::string config = place.read("theirs/config.json");
  place.write("theirs/config.json", config.insert(config.find('{') + 1, "\"my_key\": 1,"));
  const Finished done = place.run("convert", "import theirs own");
  CHECK(done.code == 0);
  CHECK(done.err.find("convert: note: theirs/config.json: key my_key is not known") == 0);
}

TEST_CASE("what convert cannot do is one line, and leaves nothing", "[tools][convert]") {
  const Models place("llama");
  place.write("file", "x");
  place.write("rope/config.json", "");
  fs::create_directory(place.path / "empty");
  fs::create_directory(place.path / "rope");
  std::string config = place.read("theirs/config.json");
  for (const auto& [name, content] : files_in(place.path / "theirs")) {
    place.write("rope/" + name, content);
  }
  config.insert(config.find('{') + 1,
                "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0},");
  place.write("rope/config.json", config);
  const struct {
    const char* arguments;
    int code;
    const char* message;
  } cases[] = {
      {"", 2, "subcommand"},
      {"explode a b", 2, "subcommand"},
      {"export theirs", 2, "OUT"},
      {"export nowhere out", 2, "nowhere: must be a folder"},
      {"export file out", 2, "file: must be a folder"},
      {"export empty out", 2, "holds neither"},
      {"merge empty out", 2, "holds neither"},
      {"export theirs theirs", 2, "is there already"},
      {"export theirs file", 2, "is there already"},
      {"export theirs /proc/nowhere/out", 1, "/proc/nowhere/out.partial: cannot create"},
      {"export theirs out --dtype f8", 2, "--dtype must be f64, f32, bf16, f16 or keep; got f8"},
      {"cast theirs out", 2, "--dtype is required"},
      {"export theirs out --max-shard-size 0", 2, "--max-shard-size must lie in"},
      {"export theirs out --max-shard-size -5", 2, "max-shard-size"},
      {"export theirs out --max-shard-size 5XB", 2, "max-shard-size"},
      {"export theirs out --max-shard-size KB", 2, "must begin with a number; got \"KB\""},
      {"export rope out", 2, "rope_scaling.rope_type is \"yarn\""},
      {"inspect nowhere", 2, "nowhere"},
      {"inspect file", 2, "file"},
  };
  for (const auto& c : cases) {
    INFO(c.arguments);
    const Finished run = place.run("convert", c.arguments);
    INFO(run.err);
    CHECK(run.code == c.code);
    CHECK(run.err.find(c.message) != std::string::npos);
    CHECK(one_line(run.err));
    CHECK(run.out == "");
    CHECK_FALSE(fs::exists(place.path / "out"));
    CHECK_FALSE(fs::exists(place.path / "out.partial"));
  }
  CHECK(place.read("file") == "x");
}

TEST_CASE("a model that Hugging Face's kinds cannot be is not exported", "[tools][convert]") {
  const Workplace place;
  REQUIRE(place
              .run("train",
                   "--config small.json --max-steps 1 --set model.norm=layernorm "
                   "--set train.num_samples=0 --out-dir run")
              .code == 0);
  const Finished done = place.run("convert", "export run out");
  CHECK(done.code == 2);
  CHECK(done.err.find("model.norm has a value that") != std::string::npos);
  CHECK_FALSE(fs::exists(place.path / "out"));
}

TEST_CASE("a conversion that fails half way leaves nothing", "[tools][convert]") {
  const Models place("llama");
  ConversionOptions options;
  int pieces = 0;
  options.before_piece = [&] { check(++pieces < 5, "enough"); };
  CHECK_THROWS_AS(export_model(place.out("theirs"), place.out("out"), options), Error);
  CHECK_THROWS_AS(rewrite_model(place.out("theirs"), place.out("out"), options), Error);
  CHECK(pieces > 5);
  CHECK_FALSE(fs::exists(place.path / "out"));
  CHECK_FALSE(fs::exists(place.path / "out.partial"));
  const Finished full =
      place.shell("(ulimit -f 4; exec '" XT_PROGRAM_DIR "/convert' export theirs out)");
  CHECK(full.code == 1);
  CHECK(full.err.find("File too large") != std::string::npos);
  CHECK_FALSE(fs::exists(place.path / "out"));
  CHECK_FALSE(fs::exists(place.path / "out.partial"));
}

TEST_CASE("convert refuses a config that is nested without end", "[tools]") {
  const Models place("llama");
  place.write("theirs/config.json",
              "{\"a\": " + std::string(300'000, '[') + std::string(300'000, ']') + "}");
  for (const char* command : {"cast theirs out --dtype bf16", "merge theirs out",
                              "export theirs out", "import theirs out", "inspect theirs"}) {
    const Finished done = place.run("convert", command);
    INFO(command << ": " << done.err);
    // What merge does not change it copies as it is.
    const bool copies = std::string(command).starts_with("merge");
    CHECK(done.code == (copies ? 0 : 2));
    CHECK((copies || done.err.find(" nested ") != std::string::npos));
    CHECK(fs::exists(place.out("out")) == copies);
    fs::remove_all(place.out("out"));
  }
}
