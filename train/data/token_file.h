#pragma once
// Files of token ids, little-endian:
//
//   raw_u16   uint16 ids and nothing else (nanoGPT's train.bin)
//   headered  1,024 bytes of header, then the ids; the file ends with the last id:
//     int32 magic 20240520, version 1, count; uint16 ids (llm.c, GPT-2)
//     int32 magic 20240801, version 7, count; uint32 ids (llm.c, Llama 3)
//     "BIN.TOK\n"; int32 version 1 or 2, bytes per id 4, count, vocabulary size (version 2), has
//     masks; int32 ids; with masks one bit an id, the lowest of a byte first (llmq)
//
// Bit i of the masks says whether id i counts as a target; where it is 0 the id is context only.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/mapped_file.h"
#include "train/data/token_source.h"

namespace xtrain {

// Whether the file begins with a known magic number or is named *.bin.
bool looks_like_tokens(const MappedFile& file);
// Whether it begins with one.
bool has_token_header(const MappedFile& file);

// How many ids the vocabulary has by the file's header; 0 where it does not say.
int64_t header_vocab_size(const MappedFile& file);

class TokenFile : public TokenSource {
 public:
  // `format`: auto, raw_u16 or headered. Throws InputError naming the file, what was expected and
  // what was found where magic, version, size or vocabulary are not those of the format.
  TokenFile(MappedFile file, std::string_view format, int64_t vocab_size);
  int64_t size() const override { return layout_.count; }
  void read(int64_t offset, std::span<int32_t> out) const override;
  void mask_targets(int64_t offset, std::span<int32_t> targets) const override;
  std::string name() const override { return file_.path(); }
  std::string reader() const override { return layout_.name; }

  struct Layout {
    const char* name;
    int64_t header;          // bytes before the first id
    int64_t width;           // bytes per id: 2 or 4
    int64_t count;           // ids
    bool masked = false;     // behind the ids one bit for each
    int64_t vocab_size = 0;  // as the header gives it; 0: it does not

    int64_t masks_at() const { return header + width * count; }
    int64_t file_bytes() const { return masks_at() + (masked ? (count + 7) / 8 : 0); }
  };

 private:
  MappedFile file_;
  Layout layout_;
  int64_t vocab_size_;
};

}  // namespace xtrain
