// Continues texts with a model.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <optional>

#include "core/error.h"
#include "model/hf/special_ids.h"
#include "model/model_folder.h"
#include "model/streamed_weights.h"
#include "model/tiny_transformer.h"
#include "tools/device.h"
#include "tools/generate_options.h"
#include "tools/generate_output.h"
#include "tools/program.h"
#include "tools/stop_signals.h"
#include "train/checkpoint.h"
#include "train/data/model_vocabulary.h"

namespace xtrain {
namespace {

// Special tokens of the model's folder.
struct Ends {
  std::optional<int32_t> begin;
  std::vector<int32_t> end;
};

Ends read_ends(const ModelFolder& folder) {
  const auto checked = [&](int64_t id) {
    const int64_t vocab_size = folder.config().vocab_size;
    check_input(id >= 0 && id < vocab_size, folder.path(), ": special token ids must lie in 0..",
                vocab_size - 1, "; got ", id);
    return static_cast<int32_t>(id);
  };
  const SpecialIds special = read_special_ids(folder.path());
  Ends ends;
  if (special.begin) ends.begin = checked(*special.begin);
  for (const int64_t id : special.end) ends.end.push_back(checked(id));
  return ends;
}

std::vector<TextLabel> labels_of(const std::vector<GenerateArguments::Prompt>& prompts,
                                 int64_t num_samples) {
  std::vector<TextLabel> labels;
  for (size_t p = 0; p < prompts.size(); ++p) {
    for (int64_t s = 0; s < num_samples; ++s) {
      labels.push_back({static_cast<int64_t>(p), s, prompts[p].text, prompts[p].ids});
    }
  }
  return labels;
}

std::vector<TextStart> starts_of(const std::vector<TextLabel>& labels) {
  std::vector<TextStart> starts;
  for (const TextLabel& label : labels) {
    starts.push_back({label.ids, static_cast<uint64_t>(label.sample)});
  }
  return starts;
}

OutputForm output_form(const GenerateArguments& arguments) {
  if (arguments.json) return OutputForm::json;
  return arguments.no_stream ? OutputForm::at_end : OutputForm::streamed;
}

std::string speed(const char* name, int64_t tokens, double seconds) {
  char line[96];
  std::snprintf(line, sizeof(line), "%s %lld tokens in %.3f s, %.4g tokens/s", name,
                static_cast<long long>(tokens), seconds,
                seconds > 0.0 ? static_cast<double>(tokens) / seconds : 0.0);
  return line;
}

void report(const Context& ctx, const Generation& generation, int64_t positions) {
  const GenerateTimes& t = generation.times;
  std::cerr << speed("prefill", t.prompt_tokens, t.prefill_seconds) << "; "
            << speed("decode", t.decoded_tokens, t.decode_seconds) << "; peak memory "
            << ctx.allocator->peak_bytes() / (1 << 20) << " MiB" << std::endl;
  for (const Continuation& text : generation.texts) {
    if (text.ending != Ending::context_full) continue;
    std::cerr << "generate: note: a text ended at the model's " << positions
              << " positions (max_position_embeddings); with --no-cache the model goes on, seeing "
                 "the last ones"
              << std::endl;
    break;
  }
}

int generate_texts(int argc, char** argv) {
  CLI::App app("Continues texts with a model.", "generate");
  GenerateArguments arguments(app);
  if (!parse_arguments(app, argc, argv)) return 0;
  const Exec exec = arguments.exec();
  make_file_faults_errors("generate");

  const ModelFolder folder(model_path(arguments.model));
  const ModelConfig& config = folder.config();
  for (const std::string& note : folder.notes()) print_error("generate", "note: " + note);
  const Vocabulary vocabulary = model_vocabulary(folder.path(), config.vocab_size).vocabulary;
  const Ends ends = read_ends(folder);
  GenerateOptions options = arguments.options(read_generation_config(folder.path()), ends.end);
  options.drawable_ids = vocabulary.size();
  const std::vector<TextLabel> labels = labels_of(
      arguments.prompts(vocabulary, config.vocab_size, ends.begin), arguments.num_samples());
  GenerateOutput output(std::cout, output_form(arguments), arguments.echo, vocabulary, labels,
                        arguments.stop_strings);

  const Context ctx = context_on(arguments.device, arguments.threads);
  const ModelUse model_use = arguments.stream_layers ? ModelUse::streamed : ModelUse::inference;
  TinyTransformer model(ctx, config, exec.dtype, model_use);
  std::optional<StreamedWeights> streamed;
  if (arguments.stream_layers) {
    streamed.emplace(ctx, folder, model.parameters(), exec.dtype);
    model.read_tables_from(*streamed);
  } else {
    folder.load(ctx, model.parameters());
  }
  stop_on_signals();
  const Generation generation =
      generate(ctx, model, exec, starts_of(labels), options, &output, &stop_requested());
  output.finish(generation);
  end_on_signals();
  report(ctx, generation, config.max_position_embeddings);
  return 0;
}

}  // namespace
}  // namespace xtrain

int main(int argc, char** argv) {
  return xtrain::run_program("generate", [&] { return xtrain::generate_texts(argc, argv); });
}
