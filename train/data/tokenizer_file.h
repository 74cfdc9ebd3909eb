#pragma once
// Tokenizers as users have them: one file, or a folder of a model.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "train/data/vocabulary.h"

namespace xtrain {

struct TokenizerFile {
  std::shared_ptr<const Vocabulary> vocabulary;
  std::string path;       // where it was found; empty for one that was made here
  std::string name;       // tokenizer.json or vocabulary.json: what a copy is to be called
  std::string content;    // of the copy
  std::string end_token;  // "eos_token" of tokenizer_config.json; empty where there is none
};

// The tokenizer in a folder: vocabulary.json of a checkpoint; tokenizer.json of a Hugging Face
// folder; or vocab.json and merges.txt, as older folders have them, with added_tokens_decoder of
// tokenizer_config.json. The pattern of such a pair is that of the "tokenizer_class" there, or else
// of the "model_type" of config.json, or else GPT-2's. None where there is no such file. Throws
// InputError naming the file at fault.
std::optional<TokenizerFile> tokenizer_in(const std::string& folder);

// `path`: "bytes"; a file of these; or a folder that holds one. Throws InputError also where there
// is none, or plain ids whose text is not known.
TokenizerFile open_tokenizer(const std::string& path);

// As open_tokenizer gives it for a vocabulary that was made here.
TokenizerFile describe_tokenizer(Vocabulary vocabulary);

// The token that parts documents: `wanted`, by its text or id, "none", or where that is empty one
// that is known to end texts (end_of_text_id) or else the tokenizer's own end_token. -1: there is
// none. Throws InputError for a wanted token that is not there.
int32_t find_end_token(const TokenizerFile& tokenizer, const std::string& wanted);

}  // namespace xtrain
