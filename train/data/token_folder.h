#pragma once
// The folder that a tokenizer's output lies in: token files, a copy of the tokenizer, and
//
//   manifest.json  what was asked for (inputs with sizes and times, options, tokenizer) and, once
//                  "complete", what came out: documents, tokens, bytes of text and shards
//   progress.json  while it is not complete: how far the work had come at some moment
//
// Each appears whole or not at all, and is on disk before what depends on it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "train/data/document_reader.h"
#include "train/data/shard_writer.h"

namespace xtrain {

// What became of one stream, training or validation.
struct StreamState {
  int64_t documents = 0;
  int64_t tokens = 0;  // with those that part documents
  int64_t text_bytes = 0;
  ShardWriter::State shards;
};

struct TokenizeState {
  ReadPosition position;
  StreamState train, val;
};

class TokenFolder {
 public:
  // `plan`: a JSON object with all that the content depends on; its "name" begins the names of
  // shards. `tokenizer_name`, `tokenizer`: the copy.
  TokenFolder(std::string path, std::string plan, std::string tokenizer_name,
              std::string tokenizer);
  ~TokenFolder();
  TokenFolder(const TokenFolder&) = delete;

  // Makes the folder ready for work. What is there of the same plan is taken up: the result is its
  // state, and is_complete() says whether anything is left to do. With `anew` it is removed first.
  // Throws InputError, naming the first difference, where another plan has been begun here, where a
  // finished file is not what was written, and where files would be replaced that are not of this
  // kind; Error while another process is at work
  // here.
  std::optional<TokenizeState> open(bool anew);
  bool is_complete() const { return complete_; }

  void save(const TokenizeState& state);
  void complete(const TokenizeState& state);
  void remove();  // everything that belongs to the plan, and the folder if open() created it

 private:
  void lock();
  std::optional<TokenizeState> take_up();
  void check_files(const TokenizeState& state) const;
  void begin(bool anew);
  std::string file(std::string_view name) const;
  void remove_leftovers();
  void remove_files(const std::string& name);

  std::string path_, plan_, tokenizer_name_, tokenizer_;
  bool complete_ = false;
  bool created_ = false;
  int lock_ = -1;  // the folder, open and locked
};

// The name of the tokenizer's copy beside a token file that lies in such a folder; empty where it
// does not. InputError where the manifest or the copy is damaged.
std::string tokenizer_beside(const std::string& token_file);

}  // namespace xtrain
