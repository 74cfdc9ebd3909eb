#pragma once
// Writes token ids into files of the layouts that token_file.h reads.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace xtrain {

enum class TokenLayout {
  llmc_u16,  // llm.c's shards of uint16 ids
  llmc_u32,  // llm.c's shards of uint32 ids
  raw_u16    // nanoGPT's one file of uint16 ids
};

std::string_view name_of(TokenLayout layout);
TokenLayout layout_of_name(std::string_view name);  // InputError naming the layouts
int64_t largest_vocabulary(TokenLayout layout);
// llm.c puts the end-of-text token before each document, nanoGPT behind it.
bool ends_documents(TokenLayout layout);

struct FinishedShard {
  std::string file;  // name in the folder
  int64_t tokens;
  std::string hash;  // of the whole file
};

// The shards FOLDER/NAME_000000.bin, ... of one stream of ids, or in layout raw_u16 the one file
// FOLDER/NAME.bin. A file bears its name only once it is complete and on disk; before it is called
// *.partial.
class ShardWriter {
 public:
  // What was written: complete files, and the ids in the one that is not.
  struct State {
    std::vector<FinishedShard> finished;
    int64_t open_tokens = 0;
  };

  // shard_tokens: ids of each shard but the last, in 1..2^31-1.
  ShardWriter(std::string folder, std::string name, TokenLayout layout, int64_t shard_tokens);
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;

  // Takes up the files of a writer that was stopped at any time after it had saved this state.
  void restore(State state);

  void add(std::span<const int32_t> ids);  // each must fit into the layout

  // Everything written so far to disk; then its state.
  const State& save();

  // Completes the last file. Without any ids there is none.
  const State& finish();

  size_t finished_shards() const { return state_.finished.size(); }

 private:
  std::string path(size_t shard) const;
  void open(bool anew);
  void close_shard();
  void flush();

  std::string folder_, name_;
  TokenLayout layout_;
  int64_t width_, header_, shard_tokens_;
  State state_;
  int descriptor_ = -1;
  std::vector<char> buffer_;
};

}  // namespace xtrain
