#pragma once
// What token files, or files beside them, say about the meaning of their ids.
//
//   meta.pkl    beside raw files, as nanoGPT writes it: a dictionary of "vocab_size", and "itos" (a
//               list of characters, or a dictionary from id to character) or "stoi" (from character
//               to id), or both. Without the two it gives the number of ids alone.
//   meta.json   the same as JSON; where both are there, it counts.
//   BIN.TOK     of version 2 has the number of ids in its header.

#include <optional>
#include <span>
#include <string>

#include "core/mapped_file.h"
#include "train/data/vocabulary.h"

namespace xtrain {

// The vocabulary of a meta file's data, as JSON; the file lies at `where`. Throws InputError naming
// it and what is wrong.
Vocabulary parse_nanogpt_meta(std::string_view json, const std::string& where);

// What the files declare, none where they say nothing. Throws InputError naming the files where two
// do not agree.
std::optional<Vocabulary> declared_vocabulary(std::span<const MappedFile> files);

}  // namespace xtrain
