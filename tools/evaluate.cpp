// Evaluates a model: its loss on text or tokens, and its accuracy on multiple-choice examples.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "core/error.h"
#include "model/model_folder.h"
#include "tools/device.h"
#include "tools/evaluate_report.h"
#include "tools/program.h"
#include "tools/progress_line.h"
#include "tools/stop_signals.h"
#include "train/checkpoint.h"
#include "train/data/model_vocabulary.h"
#include "train/eval/eval_data.h"
#include "train/eval/multiple_choice_file.h"
#include "train/eval/row_losses.h"

namespace xtrain {
namespace {

constexpr int64_t kUsualSeqLen = 1024;
constexpr int64_t kOne = 1, kMost = int64_t{1} << 53;

struct Options {
  std::string model, multiple_choice, device = "auto", dtype = "f32";
  EvalData data;
  CorpusLossOptions corpus;
  bool flash = true, json = false, wants_data = false;
  int threads = 0;
};

void add_data_options(CLI::App& app, Options& o) {
  CLI::Option* data = app.add_option("--data", o.data.files,
                                     "files or patterns, which form one stream: text, which is "
                                     "encoded with the model's vocabulary, or tokens");
  app.add_option("--format", o.data.format,
                 "what the files are: auto (found from each), text, raw_u16 or headered")
      ->needs(data)
      ->capture_default_str();
  CLI::Option* stories =
      app.add_option("--stories", o.data.stories,
                     "so many of the built-in stories that runs validate on, instead of files")
          ->excludes(data);
  app.add_option("--stories-seed", o.data.stories_seed, "of a run: data.stories_seed")
      ->needs(stories)
      ->capture_default_str();
  app.add_option("--multiple-choice", o.multiple_choice,
                 "examples in llm.c's layout or as JSON lines");
  app.callback([&o, data, stories] { o.wants_data = data->count() + stories->count() > 0; });
}

void add_computing_options(CLI::App& app, Options& o) {
  app.add_option("--batch-size", o.corpus.batch_size, "windows or examples computed at a time")
      ->check(CLI::Range(kOne, int64_t{1} << 20))
      ->capture_default_str();
  app.add_option("--seq-len", o.corpus.seq_len,
                 text("tokens that the model sees (default: ", kUsualSeqLen,
                      ", or all it can where that is less)"))
      ->check(CLI::Range(kOne, kMost));
  app.add_option("--stride", o.corpus.stride,
                 "tokens from one window to the next; below seq-len, windows overlap and each "
                 "token still counts once (default: seq-len)")
      ->check(CLI::Range(kOne, kMost));
  app.add_option("--max-tokens", o.corpus.max_tokens, "count the first ones alone, 0 for all")
      ->check(CLI::Range(int64_t{0}, kMost))
      ->capture_default_str();
  add_device_option(app, o.device);
  app.add_option("--dtype", o.dtype, "f64, f32 or bf16")->capture_default_str();
  add_attention_flags(app, o.flash);
  app.add_option("--threads", o.threads, "CPU threads, 0 for all cores")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_flag("--json", o.json, "print one line of JSON instead of a table");
}

void check_options(const Options& o) {
  check_input(o.wants_data || !o.multiple_choice.empty(),
              "nothing to evaluate on; give --data FILES, --stories N or --multiple-choice FILE");
  check_input(o.dtype == "f64" || o.dtype == "f32" || o.dtype == "bf16",
              "--dtype must be f64, f32 or bf16; got ", o.dtype);
}

std::string computer_text(const Context& ctx) {
  if (ctx.device.is_cuda()) return device_text(ctx.device);
  return text(ctx.device, " with ", ctx.threads, ctx.threads == 1 ? " thread" : " threads");
}

CorpusLossOptions computing_options(const Options& o, const ModelConfig& config) {
  CorpusLossOptions options = o.corpus;
  options.exec.dtype = dtype_from_name(o.dtype);
  options.exec.attention = o.flash ? AttentionKind::flash : AttentionKind::composed;
  if (options.seq_len == 0) {
    options.seq_len = std::min(kUsualSeqLen, config.max_position_embeddings);
  }
  return options;
}

// What is known before anything is computed.
EvalReport report_on(const ModelFolder& folder, const ModelVocabulary& found, const Exec& exec,
                     const Context& ctx) {
  const ModelConfig& config = folder.config();
  EvalReport report;
  report.model = folder.path();
  report.model_type = name_of(config.model_type);
  report.dtype = name_of(exec.dtype);
  report.attention = name_of(exec.attention);
  report.device = computer_text(ctx);
  report.vocabulary = found.file.empty() ? found.vocabulary.kind_name() : found.file;
  report.parameters = parameter_count(config);
  report.vocab_size = found.vocabulary.size();
  report.padding = config.vocab_size - found.vocabulary.size();
  return report;
}

CorpusReport evaluate_corpus(const Context& ctx, TinyTransformer& model, const TokenSource& source,
                             const Vocabulary& vocabulary, const CorpusLossOptions& options) {
  ProgressLine line("tokens");
  const CorpusLoss loss = corpus_loss(ctx, model, source, vocabulary, options,
                                      [&](int64_t done, int64_t all) { line.show(done, all); });
  return {source.name(),
          source.reader(),
          options.seq_len,
          options.stride > 0 ? options.stride : options.seq_len,
          loss,
          source.entropy_floor()};
}

MultipleChoiceReport evaluate_choices(const Context& ctx, TinyTransformer& model,
                                      const MultipleChoiceSet& set, int64_t vocab_size,
                                      const CorpusLossOptions& options) {
  ProgressLine line("examples");
  const MultipleChoiceScore score = score_multiple_choice(
      ctx, model, set, vocab_size, {options.batch_size, options.seq_len, options.exec},
      [&](int64_t done, int64_t all) { line.show(done, all); });
  return {set.name, set.reader, options.seq_len, score};
}

int evaluate(int argc, char** argv) {
  CLI::App app(
      "Evaluates a model: loss, perplexity and bits per byte on text or tokens, and "
      "accuracy on multiple choice.",
      "evaluate");
  Options o;
  app.add_option("--model", o.model, "a checkpoint, a run's folder or a Hugging Face model's")
      ->required();
  add_data_options(app, o);
  add_computing_options(app, o);
  if (!parse_arguments(app, argc, argv)) return 0;
  check_options(o);
  make_file_faults_errors("evaluate");

  // Everything is opened and checked before the weights are read.
  const ModelFolder folder(model_path(o.model));
  const ModelConfig& config = folder.config();
  for (const std::string& note : folder.notes()) print_error("evaluate", "note: " + note);
  const ModelVocabulary found = model_vocabulary(folder.path(), config.vocab_size);
  const Vocabulary& vocabulary = found.vocabulary;
  const CorpusLossOptions options = computing_options(o, config);
  check_eval_shape(config, vocabulary.size(), options.batch_size, options.seq_len);
  std::shared_ptr<const TokenSource> source;
  if (o.wants_data) source = open_eval_data(o.data, vocabulary);
  std::optional<MultipleChoiceSet> set;
  if (!o.multiple_choice.empty()) set = open_multiple_choice(o.multiple_choice, vocabulary);

  const Context ctx = context_on(o.device, o.threads);
  TinyTransformer model(ctx, config, options.exec.dtype, ModelUse::inference);
  folder.load(ctx, model.parameters());
  EvalReport report = report_on(folder, found, options.exec, ctx);
  if (source) report.corpus = evaluate_corpus(ctx, model, *source, vocabulary, options);
  if (set) {
    report.multiple_choice = evaluate_choices(ctx, model, *set, vocabulary.size(), options);
  }
  const auto print = o.json ? print_json : print_table;
  print(std::cout, report);
  return 0;
}

}  // namespace
}  // namespace xtrain

int main(int argc, char** argv) {
  return xtrain::run_program("evaluate", [&] { return xtrain::evaluate(argc, argv); });
}
