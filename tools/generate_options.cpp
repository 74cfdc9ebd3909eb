#include "tools/generate_options.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <iterator>

#include "core/error.h"
#include "core/mapped_file.h"
#include "tools/device.h"

namespace xtrain {
namespace {

// "-" is standard input.
std::string read_text(const std::string& path) {
  if (path != "-") return std::string(MappedFile(path).text());
  std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  check(!std::cin.bad(), "standard input cannot be read");
  return text;
}

constexpr const char* kFooter =
    "Texts go to standard output as they come, several one after the other, each below a line\n"
    "\"--- prompt P, sample S\"; speeds and notes go to standard error. Where the model's folder "
    "has\na generation_config.json, its values take the place of the defaults; flags win.";

}  // namespace

GenerateArguments::GenerateArguments(CLI::App& app) {
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  const auto many = [&](const char* name, std::vector<std::string>& to, const char* help) {
    app.add_option(name, to, help)->take_all()->expected(1)->allow_extra_args(false);
  };
  app.add_option("--model", model,
                 "folder of a model: Hugging Face's layout, a checkpoint, or a run's folder")
      ->required();
  many("--prompt", texts_, "text to continue; may be given several times");
  many("--prompt-file", files_, "file that holds a text to continue; - is standard input");
  many("--prompt-ids", ids_, "token ids to continue, as \"17 4 2\"");
  app.add_option("--num-samples", num_samples_, "texts for each prompt")
      ->check(CLI::Range(int64_t{1}, int64_t{10'000}))
      ->capture_default_str();
  app.add_option("--max-new-tokens", max_new_tokens_, "most tokens of a text (200)");
  app.add_option("--temperature", temperature_, "divides the logits (0.8); 0: the likeliest token");
  app.add_option("--top-k", top_k_, "draw among the k likeliest tokens; 0: among all (0)");
  app.add_option("--top-p", top_p_, "draw among the likeliest tokens of this probability (1)");
  app.add_option("--min-p", min_p_, "least probability as a share of the largest (0)");
  app.add_option("--repetition-penalty", repetition_penalty_,
                 "makes tokens that the text holds less likely (1: does not)");
  app.add_option("--seed", seed_, "of the random numbers")->capture_default_str();
  many("--stop", stop_strings, "a text ends before this string; may be given several times");
  app.add_flag("--ignore-eos", ignore_eos_, "texts go on behind the model's end token");
  app.add_flag("--add-bos", add_bos_, "begin prompts with the model's bos_token_id");
  app.add_flag("--echo", echo, "print each prompt before its continuation");
  app.add_flag("--json", json, "print one JSON object a text instead, when all are done");
  app.add_flag("--no-stream", no_stream, "print texts when all are done");
  app.add_flag("--no-cache", no_cache_,
               "a pass over the whole text for every token; beyond the model's positions the model "
               "sees the last ones");
  app.add_flag("--stream-layers", stream_layers,
               "read weights from the file when they are needed, a layer at a time");
  add_device_option(app, device);
  app.add_option("--dtype", dtype_, "f64, f32 or bf16")->capture_default_str();
  add_attention_flags(app, flash_);
  app.add_option("--threads", threads, "CPU threads; 0: one a core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.footer(kFooter);
}

Exec GenerateArguments::exec() const {
  Exec exec;
  exec.attention = flash_ ? AttentionKind::flash : AttentionKind::composed;
  exec.dtype = dtype_from_name(dtype_);
  check_input(is_floating(exec.dtype), "--dtype must be f64, f32 or bf16; got ", dtype_);
  return exec;
}

std::vector<GenerateArguments::Prompt> GenerateArguments::prompts(
    const Vocabulary& vocabulary, int64_t vocab_size, std::optional<int32_t> begin) const {
  std::vector<Prompt> all;
  const auto add_text = [&](const std::string& text, const std::string& where) {
    const bool may_be_ids = text.find_first_not_of("-0123456789, \t\r\n") == std::string::npos;
    check_input(
        vocabulary.kind() != Vocabulary::Kind::ids || may_be_ids, where, ": ", model,
        " has no tokenizer to encode text with; give token ids, as --prompt-ids \"17 4 2\"");
    all.push_back({text, vocabulary.encode(text, where)});
  };
  for (const std::string& text : texts_) add_text(text, "--prompt");
  for (const std::string& path : files_) add_text(read_text(path), path);
  for (const std::string& list : ids_) {
    const std::vector<int32_t> ids = Vocabulary::ids(vocab_size).encode(list, "--prompt-ids");
    for (const int32_t id : ids) {
      check_input(id < vocabulary.size(), "--prompt-ids: the vocabulary has ", vocabulary.size(),
                  " tokens; got ", id);
    }
    all.push_back({vocabulary.decode(ids), ids});
  }
  check_input(!add_bos_ || begin, "--add-bos: ", model, " names no bos_token_id");
  if (all.empty()) {
    check_input(begin.has_value(), "--prompt must be given: ", model,
                " names no bos_token_id to begin a text with");
    return {{"", {*begin}}};
  }
  for (size_t i = 0; i < all.size(); ++i) {
    if (add_bos_) all[i].ids.insert(all[i].ids.begin(), *begin);
    check_input(!all[i].ids.empty(), "prompt ", i + 1, " must hold at least one token");
  }
  return all;
}

GenerateOptions GenerateArguments::options(const std::optional<GenerationConfig>& config,
                                           std::vector<int32_t> end_ids) const {
  GenerateOptions options;
  SamplingOptions& s = options.sampling;
  s = sampling_options(config);
  check_input(top_k_.value_or(0) >= 0, "--top-k must be 0, for all tokens, or more; got ",
              top_k_.value_or(0));
  // Who says how to sample wants to.
  const bool samples = temperature_ || top_k_ || top_p_ || min_p_;
  if (samples && s.temperature == 0.0) s.temperature = config->temperature.value_or(1.0);
  if (temperature_) s.temperature = *temperature_;
  if (top_k_) s.top_k = *top_k_ == 0 ? std::nullopt : top_k_;
  if (top_p_) s.top_p = *top_p_;
  if (min_p_) s.min_p = *min_p_;
  if (repetition_penalty_) s.repetition_penalty = *repetition_penalty_;
  s.seed = seed_;
  if (config && config->max_new_tokens) options.max_new_tokens = *config->max_new_tokens;
  if (max_new_tokens_) options.max_new_tokens = *max_new_tokens_;
  if (!ignore_eos_) options.end_ids = std::move(end_ids);
  options.cache = !no_cache_;
  options.slide = no_cache_;
  return options;
}

}  // namespace xtrain
