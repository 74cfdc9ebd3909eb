// Learns a byte-level byte-pair encoding from text.

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <map>

#include "core/atomic_file.h"
#include "core/error.h"
#include "core/parallel.h"
#include "tools/program.h"
#include "tools/progress_line.h"
#include "tools/stop_signals.h"
#include "train/data/count_documents.h"
#include "train/data/token_folder.h"
#include "train/data/tokenizer_json.h"

namespace xtrain {
namespace {

struct Arguments {
  std::vector<std::string> inputs;
  DocumentRules documents;
  BpeTraining training;
  std::string pattern = "gpt2", out;
  int threads = 0;
};

void add_arguments(CLI::App& app, Arguments& a) {
  app.add_option("inputs", a.inputs,
                 "files, folders (all files below, by path), patterns, or - for standard input")
      ->required();
  app.add_option("--vocab-size", a.training.vocab_size,
                 "tokens in all: 256 bytes, merges and special tokens")
      ->required();
  app.add_option("--out", a.out, "the file (*.json), or a folder for tokenizer.json")->required();
  app.add_option("--pattern", a.pattern,
                 "gpt2, qwen2, llama3, or an expression of your own that cuts text into pieces")
      ->capture_default_str();
  app.add_option("--special", a.training.special_tokens, "special tokens, which get the last ids")
      ->capture_default_str();
  app.add_option("--min-frequency", a.training.min_frequency, "pairs seen less often do not merge")
      ->capture_default_str();
  app.add_option("--jsonl-field", a.documents.jsonl_field,
                 "read every input as JSONL, a document in this member of each line; without it "
                 "files named *.jsonl are, with the member \"text\"");
  app.add_option("--split-on", a.documents.split_on,
                 "cut files into documents at lines that hold exactly this");
  app.add_option("--threads", a.threads, "CPU threads, 0 for all cores");
}

std::string pattern_of(const std::string& name) {
  check_input(!name.empty(), "--pattern must not be empty");
  const std::map<std::string, std::string_view> known{{"gpt2", kGpt2Pattern},
                                                      {"qwen2", kQwen2Pattern},
                                                      {"qwen3", kQwen2Pattern},
                                                      {"llama3", kLlama3Pattern}};
  const auto found = known.find(name);
  return std::string(found == known.end() ? name : found->second);
}

// The file to write; its folder exists then.
namespace fs = std::filesystem;

std::string output_path(const std::string& out) {
  check_input(!out.empty(), "--out must name a file or a folder");
  const fs::path path = out.ends_with(".json") ? fs::path(out) : fs::path(out) / "tokenizer.json";
  const fs::path kept = tokenizer_beside(path.string());
  check_input(kept.filename() != path.filename(), path.string(),
              ": belongs to the token files beside it; choose another --out");
  return path.string();
}

void write_tokenizer(const std::string& path, const BpeTokenizer& tokenizer) {
  const fs::path folder = fs::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) fs::create_directories(folder, error);
  check(!error, folder.string(), ": cannot create the folder: ", error.message());
  write_file(path, to_tokenizer_json(tokenizer));
}

PieceCounts count(const Arguments& a, int threads) {
  const std::vector<InputFile> files = list_input_files(a.inputs);
  int64_t total = 0;
  bool known = true;
  for (const InputFile& file : files) {
    total += file.bytes;
    known = known && !file.stream;
  }
  ProgressLine line("MB", 1e6);
  PieceCounts counts =
      count_documents(files, a.documents, PreTokenizer(pattern_of(a.pattern), "--pattern"), threads,
                      stop_requested(), [&](const ReadPosition& position) {
                        line.show(position.bytes, known ? total : -1, "counted");
                      });
  check(!stop_requested(), "stopped; nothing was written");
  return counts;
}

int train_tokenizer(int argc, char** argv) {
  CLI::App app("Learns a tokenizer (byte-level BPE) from text.", "train_tokenizer");
  Arguments a;
  add_arguments(app, a);
  if (!parse_arguments(app, argc, argv)) return 0;
  check_input(a.threads >= 0 && a.threads <= 1024, "--threads must lie in 0..1024; got ",
              a.threads);
  const std::string path = output_path(a.out);
  make_file_faults_errors("train_tokenizer");
  check_training(a.training);
  stop_on_signals();
  const PieceCounts counts = count(a, a.threads == 0 ? available_cores() : a.threads);
  end_on_signals();
  std::cout << counts.pieces().size() << " different pieces\n";
  const BpeTokenizer tokenizer = train_bpe(counts, a.training);
  write_tokenizer(path, tokenizer);
  if (tokenizer.size() < a.training.vocab_size) {
    std::cerr << "train_tokenizer: the text has pairs for " << tokenizer.size() << " tokens only; "
              << a.training.vocab_size << " were asked for\n";
  }
  std::cout << path << ": " << tokenizer.size() << " tokens, "
            << tokenizer.parts().model.merges().size() << " merges\n";
  return 0;
}

}  // namespace
}  // namespace xtrain

int main(int argc, char** argv) {
  return xtrain::run_program("train_tokenizer",
                             [&] { return xtrain::train_tokenizer(argc, argv); });
}
