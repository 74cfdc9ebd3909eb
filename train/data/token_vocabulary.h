#pragma once
// What the ids of token files stand for, where something in them or beside them tells: the
// tokenizer that `tokenize` puts there (token_folder.h), or else what token_meta.h finds.

#include <optional>
#include <span>

#include "core/mapped_file.h"
#include "train/data/vocabulary.h"

namespace xtrain {

// None where nothing tells. Throws InputError naming the files where two do not agree.
std::optional<Vocabulary> token_vocabulary(std::span<const MappedFile> files);

// Throws InputError naming a file whose ids are known to be of another tokenizer than the model's.
// A bare number of ids says nothing. What tells more lies beside the files and is read once for a
// folder.
void check_token_vocabulary(std::span<const MappedFile* const> files, const Vocabulary& of_model);

}  // namespace xtrain
