#pragma once
// The `data` section of a run's configuration.

#include <cstdint>
#include <string>
#include <vector>

namespace xtrain {

struct DataConfig {
  // What the tokens are. Default "auto".
  //   auto     found from the files: token files by magic number or the name *.bin, anything
  //            else is text; no files at all means stories
  //   stories  the built-in children's stories, bytes as tokens (vocabulary 256)
  //   text     any file, bytes as tokens (vocabulary 256), or the tokens of a given byte-pair
  //            vocabulary
  //   chars    UTF-8 files, characters as tokens, ids in code point order
  //   tokens   files of token ids, see `format`
  std::string source = "auto";

  // Paths or glob patterns; the matches of one pattern are sorted by name, the patterns keep their
  // order, and the files form one stream. Default none.
  std::vector<std::string> train_files;

  // Likewise for validation. Default none: `val_fraction` of the training stream is held out.
  std::vector<std::string> val_files;

  // Layout of token files. Default "auto".
  //   auto      by magic number; without one, raw_u16
  //   raw_u16   uint16 ids and nothing else
  //   headered  a 1,024-byte header: magic 20240520 version 1 (uint16 ids), magic 20240801
  //             version 7 (uint32 ids), or "BIN.TOK\n" version 1 or 2 (int32 ids, with masks of
  //             targets or without)
  std::string format = "auto";

  // Share of the stream, taken from its end, that is held out for validation when there are no
  // val_files; in [0, 1), and 0 means no validation. Default -1: 0.1 for text and stories, 0 for
  // token files, which by custom come with a validation file of their own.
  double val_fraction = -1;

  // A saved vocabulary (JSON) to use instead of the one found from the files: from text itself, or
  // from what token files tell (token_vocabulary.h). Default none.
  std::string vocab_file;

  // Seed of the stories; the same seed tells the same stories. Default 1.
  uint64_t stories_seed = 1;

  // Number of training stories (about 500 bytes each); validation has val_fraction times as many
  // others. Default 24000, about 12 MB.
  int64_t stories_count = 24000;
};

}  // namespace xtrain
