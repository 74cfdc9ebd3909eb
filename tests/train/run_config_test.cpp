#include "train/run_config.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>

#include "core/config_reader.h"
#include "core/config_writer.h"
#include "support/catch.h"
#include "support/rejection.h"
#include "support/temporary_folder.h"

namespace xtrain {
namespace {

const std::string kModel =
    R"("model": {"model_type": "qwen3", "vocab_size": 65, "hidden_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64})";

// The tiny model with these settings on top.
RunConfig resolve(const std::vector<std::string>& settings) {
  ConfigReader reader;
  reader.add_json("{" + kModel + "}", "f.json");
  for (const std::string& each : settings) reader.set(each);
  return resolve_run_config(reader);
}

RunConfig read_run_config(const std::string& path) {
  ConfigReader reader;
  reader.add_file(path);
  return resolve_run_config(reader);
}

std::string refusal(const std::vector<std::string>& settings) {
  return rejection([&] { resolve(settings); });
}

std::string file_refusal(const std::string& json) {
  return rejection([&] {
    ConfigReader reader;
    reader.add_json(json, "f.json");
    resolve_run_config(reader);
  });
}

TEST_CASE("run config: defaults", "[run_config]") {
  const RunConfig run = resolve({});
  TrainConfig expected;
  expected.seq_len = 64;
  CHECK(run.train == expected);
  CHECK(run.model.num_key_value_heads == 4);
  CHECK(run.model.head_dim == 16);
  CHECK(run.model.intermediate_size == 192);
  CHECK(run.model.qk_norm);
  CHECK(run.data.source == DataConfig().source);
}

TEST_CASE("run config: explicit keys win over what model_type implies, in any order",
          "[run_config]") {
  ConfigReader reader;
  reader.add_json(R"({"model": {"qk_norm": false, "tie_word_embeddings": true, "head_dim": 32,
      "num_key_value_heads": 1, "intermediate_size": 100, "model_type": "qwen3", "hidden_size": 64,
      "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64}})",
                  "f.json");
  reader.set("model.model_type=qwen2");
  reader.set("model.attention_bias=false");
  const ModelConfig model = resolve_run_config(reader).model;
  CHECK(model.model_type == ModelType::qwen2);
  CHECK_FALSE(model.qk_norm);
  CHECK_FALSE(model.attention_bias);
  CHECK(model.tie_word_embeddings);
  CHECK(model.head_dim == 32);
  CHECK(model.num_key_value_heads == 1);
  CHECK(model.intermediate_size == 100);
}

TEST_CASE("run config: head counts that do not fit are refused when the config is read",
          "[run_config]") {
  const std::string must =
      "model.num_key_value_heads must be at least 1 and divide num_attention_heads; got "
      "num_key_value_heads ";
  CHECK(refusal({"model.num_attention_heads=3", "model.head_dim=16",
                 "model.num_key_value_heads=2"}) == must + "2 and num_attention_heads 3");
  CHECK(refusal({"model.num_attention_heads=7", "model.head_dim=16",
                 "model.num_key_value_heads=2"}) == must + "2 and num_attention_heads 7");
  CHECK(refusal({"model.num_key_value_heads=8"}) == must + "8 and num_attention_heads 4");
  CHECK(refusal({"model.num_key_value_heads=0"}) == must + "0 and num_attention_heads 4");
  CHECK(refusal({"model.num_key_value_heads=-1"}) == must + "-1 and num_attention_heads 4");
  CHECK(refusal({"model.num_attention_heads=8", "model.num_key_value_heads=2"}) == "accepted");
  CHECK(refusal({"model.hidden_size=65"}) ==
        "model.hidden_size must be a multiple of num_attention_heads where head_dim is not given; "
        "got hidden_size 65 and num_attention_heads 4");
  CHECK(refusal({"model.hidden_size=65", "model.head_dim=16"}) == "accepted");
  CHECK(refusal({"model.hidden_size=60"}) ==
        "model.head_dim must be even where positions is rope; got head_dim 15 and positions rope");
  CHECK(refusal({"model.head_dim=0"}) ==
        "--set model.head_dim=0: model.head_dim must be an integer from 1 to 256; got 0");
}

TEST_CASE("run config: a sequence longer than the model's positions is refused naming both",
          "[run_config]") {
  const std::string must = "train.seq_len must be at most model.max_position_embeddings; got ";
  CHECK(refusal({"train.seq_len=128"}) == must + "seq_len 128 and max_position_embeddings 64");
  CHECK(refusal({"train.seq_len=65", "model.model_type=gpt2"}) ==
        must + "seq_len 65 and max_position_embeddings 64");
  CHECK(resolve({"train.seq_len=64"}).train.seq_len == 64);
  CHECK(resolve({"train.block_size=32"}).train.seq_len == 32);
}

TEST_CASE("run config: a required key that is missing is named", "[run_config]") {
  CHECK(file_refusal("{}") ==
        "f.json: model.model_type is required and missing; give one of gpt2, llama, qwen2, qwen3");
  CHECK(file_refusal(R"({"model": {"model_type": "gpt2", "n_embd": 8, "n_head": 2,
      "block_size": 8}})") ==
        "f.json: model.num_hidden_layers is required and missing; give an integer from 1 to 10000");
}

TEST_CASE("run config: misspelt keys are refused with the nearest known one", "[run_config]") {
  CHECK(refusal({"train.learnin_rate=1"}) ==
        "--set train.learnin_rate=1: unknown key train.learnin_rate; did you mean "
        "train.learning_rate?");
  CHECK(refusal({"model.learning_rate=1"}) ==
        "--set model.learning_rate=1: unknown key model.learning_rate; did you mean "
        "train.learning_rate?");
  CHECK(refusal({"model.num_layers=1"}).ends_with("did you mean model.n_layer?"));
  CHECK(file_refusal(R"({"learning_rate": 1})") ==
        "f.json: key \"learning_rate\" must stand in section \"train\"");
}

TEST_CASE("run config: nanoGPT's names are read", "[run_config]") {
  ConfigReader reader;
  reader.add_json(R"({
    "model": {"model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 64, "block_size": 32,
              "dropout": 0.25},
    "train": {"batch_size": 3, "gradient_accumulation_steps": 5, "max_iters": 40,
              "warmup_iters": 4, "lr_decay_iters": 30, "learning_rate": 0.002, "min_lr": 0.0005,
              "eval_iters": 7, "start": "x"}})",
                  "f.json");
  const RunConfig run = resolve_run_config(reader);
  CHECK(run.model.num_hidden_layers == 2);
  CHECK(run.model.num_attention_heads == 4);
  CHECK(run.model.hidden_size == 64);
  CHECK(run.model.max_position_embeddings == 32);
  CHECK(run.model.attn_pdrop == 0.25);
  CHECK(run.train.seq_len == 32);
  CHECK(run.train.grad_accum_steps == 5);
  CHECK(run.train.max_steps == 40);
  CHECK(run.train.warmup_steps == 4);
  CHECK(run.train.decay_steps == 30);
  CHECK(run.train.min_lr_ratio == 0.25);
  CHECK(run.train.eval_steps == 7);
  CHECK(run.train.prompt == "x");
}

TEST_CASE("run config: min_lr must fit the peak and stand alone", "[run_config]") {
  CHECK(refusal({"train.learning_rate=0.001", "train.min_lr=0.002"}) ==
        "train.min_lr must be at most learning_rate; got min_lr 0.002 and learning_rate 0.001");
  CHECK(refusal({"train.min_lr=0", "train.min_lr_ratio=0"}) ==
        "train.min_lr and train.min_lr_ratio exclude each other; give one of them");
  CHECK(resolve({"train.min_lr=0"}).train.min_lr_ratio == 0);
}

TEST_CASE("run config: the total batch is shared out over micro-steps and replicas",
          "[run_config]") {
  CHECK(micro_steps(resolve({}).train) == 1);
  CHECK(micro_steps(resolve({"train.grad_accum_steps=3"}).train, 8) == 3);
  const TrainConfig train = resolve({"train.batch_size=4", "train.total_batch_size=1024"}).train;
  CHECK(micro_steps(train) == 4);
  CHECK(micro_steps(train, 2) == 2);
  CHECK(rejection([&] { micro_steps(train, 3); }) ==
        "train.total_batch_size must be a multiple of batch_size * seq_len * replicas; got 1024 "
        "and 4 * 64 * 3");
  CHECK(refusal({"train.batch_size=4", "train.total_batch_size=1000"}) ==
        "train.total_batch_size must be a multiple of batch_size * seq_len * replicas; got 1000 "
        "and 4 * 64 * 1");
  CHECK(refusal({"train.total_batch_size=1024", "train.grad_accum_steps=1"}) ==
        "train.total_batch_size and train.grad_accum_steps exclude each other; got 1024 and 1; set "
        "one of them to null");
}

TEST_CASE("run config: a micro-batch whose products could overflow is refused", "[run_config]") {
  CHECK(refusal({"train.batch_size=1048576", "model.max_position_embeddings=1048576"}) ==
        "train.batch_size * seq_len must be at most 268435456 tokens; got batch_size 1048576 and "
        "seq_len 1048576");
  CHECK(refusal({"train.batch_size=4294967298"}) ==
        "--set train.batch_size=4294967298: train.batch_size must be an integer from 1 to 1048576; "
        "got 4294967298");
  CHECK(refusal({"model.max_position_embeddings=2000000"}) ==
        "train.seq_len must be an integer from 1 to 1048576; got 2000000");
}

TEST_CASE("run config: val_fraction is a share, or -1 for the default", "[run_config]") {
  CHECK(refusal({"data.val_fraction=-1"}) == "accepted");
  CHECK(refusal({"data.val_fraction=0"}) == "accepted");
  CHECK(refusal({"data.val_fraction=-0.5"}) ==
        "data.val_fraction must be -1, or at least 0 and below 1; got -0.5");
  CHECK(refusal({"data.val_fraction=1"}).starts_with("--set data.val_fraction=1: "));
}

// Every key at a value that is not its default.
const std::vector<std::string> kEveryKey{
    "model.model_type=llama",
    "model.vocab_size=300",
    "model.hidden_size=60",
    "model.num_hidden_layers=3",
    "model.num_attention_heads=6",
    "model.num_key_value_heads=2",
    "model.head_dim=12",
    "model.intermediate_size=77",
    "model.max_position_embeddings=90",
    "model.norm=layernorm",
    "model.rms_norm_eps=1e-7",
    "model.activation=gelu_erf",
    "model.positions=learned",
    "model.rope_theta=12345.678",
    "model.rope_pairing=adjacent",
    "model.qk_norm=false",
    "model.attention_bias=true",
    "model.attention_output_bias=true",
    "model.mlp_bias=true",
    "model.tie_word_embeddings=true",
    "model.initializer_range=0.03",
    "model.embd_pdrop=0.1",
    "model.resid_pdrop=0.2",
    "model.attn_pdrop=0.3",
    "train.batch_size=3",
    "train.seq_len=20",
    "train.total_batch_size=120",
    "train.max_steps=12",
    "train.learning_rate=0.0031",
    "train.warmup_steps=3",
    "train.lr_schedule=wsd",
    "train.min_lr_ratio=0.07",
    "train.decay_steps=5",
    "train.beta1=0.8",
    "train.beta2=0.97",
    "train.adam_eps=1e-9",
    "train.weight_decay=0.01",
    "train.grad_clip=0.5",
    "train.eval_interval=4",
    "train.eval_steps=2",
    "train.checkpoint_interval=6",
    "train.keep_latest=1",
    "train.log_interval=2",
    "train.out_dir=elsewhere",
    "train.resume=auto",
    "train.seed=9223372036854775807",
    "train.dtype=bf16",
    "train.attention=flash",
    "train.recompute=block",
    "train.fused=false",
    "train.recorded=false",
    "train.device=cpu",
    "train.threads=2",
    "train.gemm=naive",
    "train.gemm_choices=choices.json",
    "train.num_samples=1",
    "train.max_new_tokens=9",
    "train.temperature=0",
    "train.top_k=40",
    "train.prompt=Once \"upon\"",
    "data.source=tokens",
    "data.train_files=[\"a b\", \"c*\"]",
    "data.val_files=d",
    "data.format=headered",
    "data.val_fraction=0.2",
    "data.vocab_file=v.json",
    "data.stories_seed=5",
    "data.stories_count=10",
};

TEST_CASE("run config: the resolved config reads back to the same one", "[run_config]") {
  for (const auto& settings : {std::vector<std::string>{}, kEveryKey}) {
    const RunConfig run = resolve(settings);
    const std::string json = run_config_to_json(run);
    const TemporaryFolder folder;
    const RunConfig back = read_run_config(folder.write("config.json", json));
    CHECK(back.model == run.model);
    CHECK(back.train == run.train);
    CHECK(run_config_to_json(back) == json);
  }
}

TEST_CASE("run config: every key can be set, and every one reaches the resolved config",
          "[run_config]") {
  RunConfig plain = resolve({});
  std::set<std::string> set_keys;
  for (const std::string& each : kEveryKey) set_keys.insert(each.substr(0, each.find('=')));
  set_keys.insert("train.grad_accum_steps");  // excluded by total_batch_size
  set_keys.insert("train.init");              // excludes keys of the model
  std::set<std::string> known;
  for (const ConfigSection& section : config_sections(plain)) {
    for (const ConfigField& field : section.fields) known.insert(section.name + "." + field.key);
  }
  CHECK(set_keys == known);

  const auto lines_of_keys = [](const RunConfig& run) {
    std::istringstream json(run_config_to_json(run));
    std::set<std::string> lines;
    for (std::string line; std::getline(json, line);) {
      if (line.starts_with("    \"")) lines.insert(line);
    }
    return lines;
  };
  const std::set<std::string> a = lines_of_keys(resolve(kEveryKey)), b = lines_of_keys(plain);
  CHECK(a.size() == known.size());
  std::vector<std::string> equal;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(equal));
  CHECK(equal ==
        std::vector<std::string>{"    \"grad_accum_steps\": null,", "    \"init\": \"\","});
}

TEST_CASE("run config: shipped configs resolve, name no data and no machine", "[run_config]") {
  const std::filesystem::path folder = std::filesystem::path(XT_SOURCE_DIR) / "configs";
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    const std::string path = file.path().string();
    INFO(path);
    names.insert(file.path().stem().string());
    const RunConfig run = read_run_config(path);
    CHECK(run.data.train_files.empty());
    CHECK(run.data.val_files.empty());
    CHECK(run.data.vocab_file.empty());
    CHECK(run.train.device == DeviceChoice::any);
    CHECK(run.train.out_dir == "out");
    CHECK(run.train.resume == "none");
  }
  for (const char* each : {"tiny", "shakespeare_char_cpu", "shakespeare_char", "gpt2_124m",
                           "qwen3_0.6b", "qwen2.5_0.5b", "llama_small"}) {
    CHECK(names.count(each) == 1);
  }
}

TEST_CASE("run config: shipped configs have the sizes of the models they are named after",
          "[run_config]") {
  const auto count = [](const std::string& name) {
    return parameter_count(read_run_config(std::string(XT_SOURCE_DIR) + "/configs/" + name).model);
  };
  CHECK(count("gpt2_124m.json") == 124'439'808);
  CHECK(count("qwen2.5_0.5b.json") == 494'032'768);
  CHECK(count("qwen3_0.6b.json") == 596'049'920);
  const RunConfig gpt2 = read_run_config(std::string(XT_SOURCE_DIR) + "/configs/gpt2_124m.json");
  CHECK(micro_steps(gpt2.train, 8) == 1);
  CHECK(micro_steps(gpt2.train, 1) == 8);
}

}  // namespace
}  // namespace xtrain
