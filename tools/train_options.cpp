#include "tools/train_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <ostream>

#include "core/config_reader.h"
#include "core/config_writer.h"
#include "core/error.h"

namespace xtrain {
namespace {

namespace fs = std::filesystem;

std::string keys_help() {
  RunConfig defaults;
  return "Config keys, settable by --set section.key=value:\n" +
         config_to_help(config_sections(defaults));
}

}  // namespace

std::vector<std::string> config_folders(const std::string& program) {
  std::error_code error;
  fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) self = fs::absolute(program, error);
  const fs::path folder = self.parent_path();
  return {(folder / "../share/xtrain/configs").lexically_normal().string(),
          (folder / "../../configs").lexically_normal().string()};
}

void TrainOptions::add_key(CLI::App& app, std::string flag, std::string section, std::string key,
                           const std::string& help) {
  key_flags_.push_back({std::move(flag), std::move(section), std::move(key), std::nullopt});
  KeyFlag& added = key_flags_.back();
  app.add_option_function<std::string>(
         added.flag, [&added](const std::string& value) { added.value = value; },
         help + " (" + added.section + "." + added.key + ")")
      ->take_last();
}

TrainOptions::TrainOptions(CLI::App& app, std::string program) : program_(std::move(program)) {
  app.add_option("--config", config_,
                 "JSON file, or the name of an installed config such as tiny.json");
  CLI::Option* flash = app.add_flag_callback(
      "--flash", [this] { flash_ = 1; },
      "attention that streams over keys (train.attention flash)");
  app.add_flag_callback(
         "--no-flash", [this] { flash_ = -1; }, "train.attention composed")
      ->excludes(flash);
  add_key(app, "--device", "train", "device", "auto, cpu or cuda");
  add_key(app, "--dtype", "train", "dtype", "f64, f32 or bf16");
  add_key(app, "--recompute", "train", "recompute", "none, activations, attention or block");
  add_key(app, "--batch-size", "train", "batch_size", "sequences of a micro-step");
  add_key(app, "--seq-len", "train", "seq_len", "tokens of a sequence");
  add_key(app, "--max-steps", "train", "max_steps", "optimizer steps");
  add_key(app, "--learning-rate", "train", "learning_rate", "peak learning rate");
  add_key(app, "--seed", "train", "seed", "of weights, order and dropout");
  add_key(app, "--out-dir", "train", "out_dir", "folder of config, metrics and checkpoints");
  add_key(app, "--init", "train", "init", "folder of the model to start from");
  add_key(app, "--resume", "train", "resume", "none, auto or a checkpoint's path");
  add_key(app, "--threads", "train", "threads", "CPU threads, 0 for all cores");
  app.add_option("--data", data_, "training files or patterns (data.train_files)");
  app.add_option("--set", settings_, "section.key=value, any key of the config")
      ->take_all()
      ->expected(1);
  app.add_flag("--print-config", print_config_, "print the resolved config and stop");
  app.add_flag("--print-keys", print_keys_,
               "print docs/config.md, the table of all keys, and stop");
  app.footer(keys_help());
}

std::string config_keys_page() {
  RunConfig defaults;
  return "# Config keys\n\nPrinted by `train --print-keys`. A config file is a JSON object of "
         "these "
         "sections; `--set section.key=value` sets one key. Unknown keys are errors.\n\n" +
         config_to_markdown(config_sections(defaults));
}

bool TrainOptions::print_page(std::ostream& out) const {
  if (print_keys_) {
    out << config_keys_page();
  } else if (print_config_) {
    out << run_config_to_json(resolve()) << std::endl;
  }
  return print_keys_ || print_config_;
}

RunConfig TrainOptions::resolve() const {
  const bool from_model = std::any_of(key_flags_.begin(), key_flags_.end(),
                                      [](const KeyFlag& f) { return f.key == "init" && f.value; });
  check_input(!config_.empty() || !settings_.empty() || from_model,
              "--config must name a config; got none; try --config configs/tiny.json");
  ConfigReader reader;
  if (!config_.empty()) reader.add_file(find_config(config_, config_folders(program_)));
  if (!data_.empty()) reader.set("data", "train_files", data_, "--data");
  for (const KeyFlag& f : key_flags_) {
    if (f.value) reader.set(f.section, f.key, *f.value, f.flag);
  }
  if (flash_ != 0) {
    reader.set("train", "attention", flash_ > 0 ? "flash" : "composed",
               flash_ > 0 ? "--flash" : "--no-flash");
  }
  for (const std::string& setting : settings_) reader.set(setting);
  return resolve_run_config(reader);
}

}  // namespace xtrain
