#pragma once
// Hugging Face's tokenizer.json for byte-level byte-pair encodings (GPT-2, Llama 3, Qwen2, Qwen3),
// and the older pair of vocab.json and merges.txt.

#include <string>
#include <string_view>

#include "train/data/bpe_tokenizer.h"

namespace xtrain {

// Merges are read in both notations, "a b" and ["a","b"]. What would change ids and is not
// implemented is refused by name. Throws InputError, beginning with `where`, in one line.
BpeTokenizer parse_tokenizer_json(std::string_view json, const std::string& where);

// vocab.json maps tokens to ids; merges.txt has a merge a line, first learned first, with either
// kind of line end. Neither file names the pattern or the added tokens.
BpeTokenizer load_vocab_and_merges(const std::string& vocab_path, const std::string& merges_path,
                                   std::string_view pattern, std::vector<AddedToken> added = {},
                                   bool nfc = false);

// Merges are written as ["a","b"]. The same tokenizer gives the same bytes.
std::string to_tokenizer_json(const BpeTokenizer& tokenizer);

}  // namespace xtrain
