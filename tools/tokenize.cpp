// Turns text into token files.

#include "train/data/tokenize.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <iostream>

#include "core/error.h"
#include "core/parallel.h"
#include "tools/program.h"
#include "tools/progress_line.h"
#include "tools/stop_signals.h"

namespace xtrain {
namespace {

struct Arguments {
  TokenizeOptions options;
  std::string tokenizer, end_token, format, name;
  bool markers = false, measure = false;
};

struct Seconds {
  double wall = 0, cpu = 0;
};

void add_arguments(CLI::App& app, Arguments& a) {
  TokenizeOptions& o = a.options;
  app.add_option("inputs", o.inputs,
                 "files, folders (all files below, by path), patterns, or - for standard input")
      ->required();
  app.add_option("--tokenizer", a.tokenizer,
                 "tokenizer.json, a folder that holds one or vocab.json and merges.txt, a "
                 "checkpoint, \"bytes\", or \"chars\" for the characters of the inputs")
      ->required();
  app.add_option("--out-dir", o.out_dir, "folder of the token files");
  app.add_option("--name", a.name,
                 "begins the names of shards: NAME_train_000000.bin (the folder's own name)");
  app.add_option(
      "--format", a.format,
      "llmc_u16, llmc_u32 (llm.c's shards) or raw_u16 (nanoGPT's train.bin and val.bin); "
      "without it the shards that the vocabulary needs");
  app.add_option("--shard-tokens", o.shard_tokens, "ids of a shard")->capture_default_str();
  app.add_option("--eot", a.end_token,
                 "token that parts documents, by its text or id, or \"none\"; without it "
                 "<|endoftext|>, <|end_of_text|> or the eos_token of tokenizer_config.json");
  app.add_option("--jsonl-field", o.documents.jsonl_field,
                 "read every input as JSONL, a document in this member of each line; without it "
                 "files named *.jsonl are, with the member \"text\"");
  app.add_option("--split-on", o.documents.split_on,
                 "cut files into documents at lines that hold exactly this");
  app.add_flag("--markers", a.markers,
               "special tokens spelt in the text become their ids; otherwise they are plain text");
  app.add_option("--val", o.val_inputs, "inputs of the validation split");
  app.add_option("--val-fraction", o.val_fraction,
                 "share of the documents that becomes the validation split, drawn by their number");
  app.add_option("--val-documents", o.val_documents,
                 "so many documents, the first, become the validation split");
  app.add_option("--seed", o.seed, "of the draw of --val-fraction")->capture_default_str();
  app.add_option("--threads", o.threads, "CPU threads, 0 for all cores");
  app.add_flag("--overwrite", o.overwrite, "remove what an earlier run has left in the folder");
  app.add_option("--save-seconds", o.save_seconds,
                 "at most so much work is lost when the program is killed")
      ->capture_default_str();
  app.add_flag("--measure", a.measure, "write nothing; say how fast it goes");
}

void complete_options(Arguments& a, const TokenizerFile& tokenizer) {
  TokenizeOptions& o = a.options;
  const bool narrow = tokenizer.vocabulary->size() <= largest_vocabulary(TokenLayout::llmc_u16);
  o.layout = !a.format.empty() ? layout_of_name(a.format)
             : narrow          ? TokenLayout::llmc_u16
                               : TokenLayout::llmc_u32;
  o.markers = a.markers ? Markers::tokens : Markers::plain_text;
  o.end_token = find_end_token(tokenizer, a.end_token);
  const std::filesystem::path folder = std::filesystem::path(o.out_dir + "/.").lexically_normal();
  o.name = a.name.empty() ? folder.parent_path().filename().string() : a.name;
  const bool usable = !o.name.empty() && o.name.front() != '.';
  check_input(a.name.empty() || usable, "--name must not begin with a dot; got \"", a.name, '"');
  if (!usable) o.name = "tokens";
}

void print_split(const char* split, const StreamState& state) {
  std::cout << split << ": " << state.documents << " documents, " << state.tokens << " tokens, "
            << state.text_bytes << " bytes of text";
  if (!state.shards.finished.empty()) std::cout << ", " << state.shards.finished.size() << " files";
  std::cout << "\n";
}

void print_speed(const TokenizeResult& result, Seconds time, int threads) {
  const double mb = static_cast<double>(result.bytes - result.resumed_bytes) / 1e6;
  const double text_bytes = static_cast<double>(result.train.text_bytes + result.val.text_bytes);
  char text[200];
  std::snprintf(text, sizeof text,
                "%.1f MB in %.2f s: %.1f MB/s on %d threads, %.1f MB for each second of a core; "
                "%.2f bytes a token\n",
                mb, time.wall, mb / time.wall, threads, mb / time.cpu,
                text_bytes / static_cast<double>(result.train.tokens + result.val.tokens));
  std::cout << text;
}

// What a user may not have meant.
void print_notes(const Arguments& a, const TokenizeResult& result) {
  const TokenizeOptions& o = a.options;
  if (o.end_token < 0 && a.end_token != "none") {
    std::cerr << "tokenize: the tokenizer has no end-of-text token, so documents follow each other "
                 "without a mark (--eot names one)\n";
  }
  if (result.val.documents > 0) return;
  std::cerr << (o.val_fraction > 0
                    ? "tokenize: no document fell to the validation split\n"
                    : "tokenize: no validation split (--val, --val-fraction or --val-documents "
                      "makes one)\n");
}

int report(const Arguments& a, const TokenizeResult& result, Seconds time) {
  if (result.stopped) {
    std::cerr << "tokenize: stopped; the same command goes on from here\n";
    return 1;
  }
  print_split("train", result.train);
  print_split("val", result.val);
  if (result.already_complete) {
    std::cout << a.options.out_dir << " was complete already\n";
    return 0;
  }
  print_notes(a, result);
  print_speed(result, time, a.options.threads);
  return 0;
}

TokenizeResult run(const TokenizerFile& tokenizer, const TokenizeOptions& options, Seconds& time) {
  ProgressLine line("MB", 1e6);
  const std::clock_t begin = std::clock();
  TokenizeResult result =
      tokenize(tokenizer, options, stop_requested(), [&](const TokenizeProgress& progress) {
        char tokens[32];
        std::snprintf(tokens, sizeof tokens, "%.1f M tokens",
                      static_cast<double>(progress.tokens) / 1e6);
        line.show(progress.bytes, progress.total_known ? progress.total_bytes : -1, tokens);
      });
  time = {line.seconds(), static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC};
  return result;
}

int tokenize_program(int argc, char** argv) {
  CLI::App app("Turns text into token files for training.", "tokenize");
  Arguments a;
  a.options.threads = 0;
  add_arguments(app, a);
  if (!parse_arguments(app, argc, argv)) return 0;
  TokenizeOptions& o = a.options;
  check_input(a.measure || !o.out_dir.empty(), "--out-dir must name a folder for the token files");
  check_input(o.threads >= 0 && o.threads <= 1024, "--threads must lie in 0..1024; got ",
              o.threads);
  if (a.measure) o.out_dir.clear();
  if (o.threads == 0) o.threads = available_cores();
  make_file_faults_errors("tokenize");
  const TokenizerFile tokenizer =
      a.tokenizer == "chars" ? tokenizer_of_characters(o) : open_tokenizer(a.tokenizer);
  complete_options(a, tokenizer);
  stop_on_signals();
  Seconds time;
  const TokenizeResult result = run(tokenizer, o, time);
  end_on_signals();
  return report(a, result, time);
}

}  // namespace
}  // namespace xtrain

int main(int argc, char** argv) {
  return xtrain::run_program("tokenize", [&] { return xtrain::tokenize_program(argc, argv); });
}
