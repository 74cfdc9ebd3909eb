#pragma once
// The command line of `generate`.

#include <optional>
#include <string>
#include <vector>

#include "model/exec.h"
#include "train/data/vocabulary.h"
#include "train/generate/generation_config.h"
#include "train/generate/generator.h"

namespace CLI {
class App;
}

namespace xtrain {

class GenerateArguments {
 public:
  // Adds the options to the app; values are valid after the app has parsed.
  explicit GenerateArguments(CLI::App& app);
  GenerateArguments(const GenerateArguments&) = delete;
  GenerateArguments& operator=(const GenerateArguments&) = delete;

  std::string model, device = "auto";
  std::vector<std::string> stop_strings;
  int threads = 0;
  bool stream_layers = false, no_stream = false, json = false, echo = false;

  Exec exec() const;

  // One text to continue, and which of its prompt's samples it is.
  struct Prompt {
    std::string text;  // as given, or the text of given ids
    std::vector<int32_t> ids;
  };
  // Of --prompt, then --prompt-file, then --prompt-ids. `begin` goes before each where --add-bos
  // asks for it, and is the only token of a text from nothing when there is no prompt. InputError
  // for what cannot be read, and when a text would hold no token.
  std::vector<Prompt> prompts(const Vocabulary& vocabulary, int64_t vocab_size,
                              std::optional<int32_t> begin) const;
  int64_t num_samples() const { return num_samples_; }

  // Flags before the model's generation_config.json before defaults.
  GenerateOptions options(const std::optional<GenerationConfig>& config,
                          std::vector<int32_t> end_ids) const;

 private:
  std::vector<std::string> texts_, files_, ids_;
  std::optional<int64_t> max_new_tokens_, top_k_;
  std::optional<double> temperature_, top_p_, min_p_, repetition_penalty_;
  uint64_t seed_ = 0;
  int64_t num_samples_ = 1;
  std::string dtype_ = "f32";
  bool no_cache_ = false, flash_ = true, ignore_eos_ = false, add_bos_ = false;
};

}  // namespace xtrain
