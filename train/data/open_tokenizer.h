#pragma once
// Tokenizers as users have them: one file, or a folder of a model.

#include <cstdint>
#include <memory>
#include <string>

#include "train/data/vocabulary.h"

namespace xtrain {

struct TokenizerFile {
  std::shared_ptr<const Vocabulary> vocabulary;
  std::string name;       // tokenizer.json or vocab.json: what a copy is to be called
  std::string content;    // of the file; a folder without tokenizer.json is written as one
  std::string end_token;  // "eos_token" of tokenizer_config.json; empty where there is none
};

// `path`: "bytes"; a tokenizer.json; the file of a Vocabulary; or a folder: a checkpoint, or one
// with Hugging Face's tokenizer.json or vocab.json and merges.txt (or that vocab.json itself). The
// pattern of the latter pair is found by the "tokenizer_class" of tokenizer_config.json and is
// GPT-2's without one. Throws InputError naming the file at fault.
TokenizerFile open_tokenizer(const std::string& path);

// As open_tokenizer gives it for a vocabulary that was made here.
TokenizerFile describe_tokenizer(Vocabulary vocabulary);

// The token that parts documents: `wanted`, by its text or id, "none", or where that is empty
// <|endoftext|>, <|end_of_text|> or the tokenizer's own end_token. -1: there is none. Throws
// InputError for a wanted token that is not there.
int32_t find_end_token(const TokenizerFile& tokenizer, const std::string& wanted);

}  // namespace xtrain
