// Runs that start from a model's folder.

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/config_writer.h"
#include "model/hf/exported_config.h"
#include "model/hf/layout_writer.h"
#include "support/catch.h"
#include "support/rejection.h"
#include "support/temporary_folder.h"
#include "train/data/exported_tokenizer.h"
#include "train/small_run.h"

using namespace xtrain;
namespace fs = std::filesystem;

namespace {

// A run that knows its model from the folder alone.
RunConfig run_from(const std::string& init, const std::string& out_dir,
                   const std::vector<std::string>& settings = {}) {
  ConfigReader reader;
  reader.add_json(R"({
    "train": {"batch_size": 2, "max_steps": 3, "warmup_steps": 2, "eval_interval": 0,
              "checkpoint_interval": 0, "threads": 1, "num_samples": 0, "seq_len": 16},
    "data": {"stories_count": 10}})",
                  "test");
  reader.set("train", "init", init, "--init");
  reader.set("train", "out_dir", out_dir, "--out-dir");
  for (const std::string& setting : settings) reader.set(setting);
  return resolve_run_config(reader);
}

// The checkpoint of a run of two steps.
std::string trained(const TemporaryFolder& folder, const std::vector<std::string>& settings = {},
                    const std::vector<std::string>& data = {}) {
  RunConfig run = small_run(folder.file("source"), settings);
  run.data.train_files = data;
  Replica alone;
  Trainer trainer(cpu_context(1), run, alone);
  trainer.train_step();
  trainer.train_step();
  return trainer.save();
}

std::string weights_of(const RunConfig& run) {
  Replica alone;
  return Trainer(cpu_context(1), run, alone).weights_checksum();
}

std::string checkpoint_weights(const std::string& checkpoint, const TemporaryFolder& folder) {
  RunConfig run = small_run(folder.file("source"));
  run.train.resume = checkpoint;
  return weights_of(run);
}

bool mentions(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a run starts from a checkpoint's weights with a fresh optimizer", "[train][init]") {
  const TemporaryFolder folder;
  const std::string checkpoint = trained(folder);
  const std::string weights = checkpoint_weights(checkpoint, folder);
  const RunConfig run = run_from(checkpoint, folder.file("tuned"));
  CHECK(run.model == small_run(folder.file("x"), {"model.vocab_size=256"}).model);
  Replica alone;
  Trainer trainer(cpu_context(1), run, alone);
  CHECK(trainer.weights_checksum() == weights);
  CHECK(trainer.state().step == 0);
  CHECK(trainer.resumed_from() == "");
  CHECK(trainer.train_step().step == 1);
  CHECK(trainer.weights_checksum() != weights);
  // The folder of a run stands for its newest checkpoint; the seed does not matter.
  CHECK(weights_of(run_from(folder.file("source"), folder.file("b"), {"train.seed=5"})) == weights);
}

TEST_CASE("masters of a bf16 run are the folder's unrounded values", "[train][init]") {
  const TemporaryFolder folder;
  const std::string checkpoint = trained(folder);
  CHECK(weights_of(run_from(checkpoint, folder.file("b"), {"train.dtype=bf16"})) ==
        checkpoint_weights(checkpoint, folder));
}

TEST_CASE("a run starts from a Hugging Face folder", "[train][init]") {
  const TemporaryFolder folder;
  const std::string checkpoint = trained(folder), theirs = folder.file("theirs");
  const ModelFolder source(checkpoint);
  fs::create_directories(theirs);
  write_tensor_files(
      theirs, tensors_in_layout(source, hugging_face_layout(source.config()), std::nullopt), 20000);
  folder.write("theirs/config.json",
               hugging_face_config_json(source.config(), {}, ElementType::f32));
  CHECK(weights_of(run_from(theirs, folder.file("b"))) == checkpoint_weights(checkpoint, folder));
}

TEST_CASE("keys that contradict the model of the folder are refused by name", "[train][init]") {
  const TemporaryFolder folder;
  const std::string checkpoint = trained(folder);
  const auto said = [&](const std::vector<std::string>& settings) {
    return rejection([&] { run_from(checkpoint, folder.file("b"), settings); });
  };
  CHECK(said({"model.hidden_size=32", "model.vocab_size=0", "model.attn_pdrop=0.1",
              "model.initializer_range=0.5"}) == "accepted");
  CHECK(said({"model.hidden_size=64"}) == "model.hidden_size is 64; the model in train.init " +
                                              checkpoint + " has 32; leave the key out");
  CHECK(mentions(said({"model.model_type=llama"}), "model.model_type is \"llama\""));
  CHECK(mentions(said({"model.rope_theta=5"}), "model.rope_theta is 5.0"));
  CHECK(mentions(said({"model.vocab_size=300"}), "model.vocab_size is 300"));
  CHECK(mentions(said({"train.seq_len=33"}), "max_position_embeddings 32"));
  CHECK(mentions(said({"train.init=nowhere"}), "nowhere: must be a folder that holds a model"));
}

TEST_CASE("text is read with the vocabulary of the model", "[train][init]") {
  const TemporaryFolder folder;
  std::string text = "the quick brown fox ";
  while (text.size() < 3000) text += text;
  const std::string checkpoint =
      trained(folder, {"data.source=chars"}, {folder.write("text.txt", text)});
  RunConfig run = run_from(checkpoint, folder.file("b"));
  run.data.train_files = {folder.write("fewer.txt", std::string(500, 'o') + std::string(500, 'x'))};
  Replica alone;
  {
    const Trainer trainer(cpu_context(1), run, alone);
    std::vector<int32_t> ids(1);
    trainer.data().train->read(0, ids);
    CHECK(trainer.data().vocabulary->decode(ids) == "o");
    CHECK(trainer.data().vocabulary->size() == trainer.config().model.vocab_size);
  }
  run.data.train_files = {folder.write("z.txt", std::string(1000, 'z'))};
  CHECK(mentions(rejection([&] { Trainer(cpu_context(1), run, alone); }),
                 "the character \"z\" at byte 0 is not one of"));
  run.data.vocab_file = folder.write("bytes.json", Vocabulary::bytes().to_json());
  CHECK(mentions(rejection([&] { Trainer(cpu_context(1), run, alone); }),
                 "must be the vocabulary of the model that the run starts from"));
}

TEST_CASE("a run does not start on tokens of another tokenizer than its model's", "[train][init]") {
  const TemporaryFolder folder;
  std::string text = "the quick brown fox ";
  while (text.size() < 3000) text += text;
  RunConfig run = run_from(trained(folder, {"data.source=chars"}, {folder.write("text.txt", text)}),
                           folder.file("b"));
  run.data.train_files = {folder.write("ids.bin", std::string(400, '\0'))};
  Replica alone;
  CHECK_NOTHROW(Trainer(cpu_context(1), run, alone));
  folder.write("meta.json", R"({"vocab_size": 2, "itos": ["x", "y"]})");
  CHECK(mentions(rejection([&] { Trainer(cpu_context(1), run, alone); }),
                 "ids.bin: its ids are those of another tokenizer than the model's"));
  std::filesystem::remove(folder.file("meta.json"));
  const auto pickle = [](const std::string& characters) {
    std::string all = "\x80\x02}(\x8c\x0avocab_sizeK";
    all += static_cast<char>(characters.size());
    all += "\x8c\x04itos](";
    for (const char c : characters) all += std::string("\x8c\x01") + c;
    return all + "eu.";
  };
  folder.write("meta.pkl", pickle("xy"));
  CHECK(mentions(rejection([&] { Trainer(cpu_context(1), run, alone); }),
                 "ids.bin: its ids are those of another tokenizer than the model's"));
  std::string of_model(text);
  std::sort(of_model.begin(), of_model.end());
  of_model.erase(std::unique(of_model.begin(), of_model.end()), of_model.end());
  folder.write("meta.pkl", pickle(of_model));
  CHECK_NOTHROW(Trainer(cpu_context(1), run, alone));
}

TEST_CASE("a resumed run goes on from its checkpoint, not from the folder", "[train][init]") {
  const TemporaryFolder folder;
  const std::string checkpoint = trained(folder);
  RunConfig run = run_from(checkpoint, folder.file("tuned"));
  Replica alone;
  std::string saved, weights;
  {
    Trainer trainer(cpu_context(1), run, alone);
    trainer.train_step();
    saved = trainer.save();
    weights = trainer.weights_checksum();
  }
  run.train.resume = "auto";
  Trainer resumed(cpu_context(1), run, alone);
  CHECK(resumed.resumed_from() == saved);
  CHECK(resumed.state().step == 1);
  CHECK(resumed.weights_checksum() == weights);
}
