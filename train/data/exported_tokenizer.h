#pragma once
// A vocabulary as the files that Hugging Face's tokenizers load.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "train/data/vocabulary.h"

namespace xtrain {

// tokenizer.json and tokenizer_config.json, name to content; the same ids for every text:
//
//   bpe     the tokenizer as it is
//   bytes   byte-level BPE without merges, in which a byte's id is its value
//   chars   a list of words of one character each; another character is an error there too
//   ids     no files: their text is not known
std::map<std::string, std::string> exported_tokenizer(const Vocabulary& vocabulary,
                                                      int64_t max_length);

// The vocabulary of kind bytes or chars whose tokenizer.json this is, whatever its spaces and its
// order of keys; none for any other file.
std::optional<Vocabulary> byte_or_char_vocabulary(std::string_view tokenizer_json);

// The id of the marker that ends a text, "<|endoftext|>" or one of other names for it; none where
// the vocabulary has no such marker.
std::optional<int64_t> end_of_text_id(const Vocabulary& vocabulary);

}  // namespace xtrain
