#pragma once
// Text files to token files: read, encoded on many threads and written in order, in constant
// memory. The files depend on the inputs and options alone, not on the number of threads or on how
// often the work was interrupted.

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "train/data/bpe_tokenizer.h"
#include "train/data/document_reader.h"
#include "train/data/shard_writer.h"
#include "train/data/token_folder.h"
#include "train/data/tokenizer_file.h"

namespace xtrain {

struct TokenizeOptions {
  std::vector<std::string> inputs;  // as list_input_files takes them
  DocumentRules documents;
  Markers markers = Markers::plain_text;
  int32_t end_token = -1;  // before or behind each document, as the layout has it; -1: none

  // Where a document goes: validation are all documents of val_inputs; without those the first
  // val_documents; without either each document with probability val_fraction, by a number that
  // depends on the seed and the document's number alone.
  std::vector<std::string> val_inputs;
  int64_t val_documents = 0;
  double val_fraction = 0;
  uint64_t seed = 1;

  std::string out_dir;  // empty: nothing is written, only counted
  std::string name = "tokens";
  TokenLayout layout = TokenLayout::llmc_u16;
  int64_t shard_tokens = 100'000'000;
  bool overwrite = false;

  int threads = 1;
  double save_seconds = 10;  // between two states to go on from; every shard is followed by one
};

struct TokenizeProgress {
  int64_t bytes = 0;        // read
  int64_t total_bytes = 0;  // of all inputs whose size is known
  bool total_known = true;
  int64_t tokens = 0;
};

struct TokenizeResult {
  StreamState train, val;
  int64_t resumed_bytes = 0;  // of the inputs, read by an earlier run
  int64_t bytes = 0;          // read in all
  bool already_complete = false;
  bool stopped = false;  // at the caller's wish; the same call goes on
};

// Whether document number `document` is held out, by seed and fraction.
bool in_validation(uint64_t seed, int64_t document, double fraction);

// Sets `*stop` to end early with a state to go on from. Throws InputError for inputs that cannot be
// encoded, naming file and line; nothing of the output is left then.
TokenizeResult tokenize(const TokenizerFile& tokenizer, const TokenizeOptions& options,
                        const std::atomic<bool>& stop,
                        const std::function<void(const TokenizeProgress&)>& on_progress);

// The characters of all documents, as a tokenizer.
TokenizerFile tokenizer_of_characters(const TokenizeOptions& options);

}  // namespace xtrain
