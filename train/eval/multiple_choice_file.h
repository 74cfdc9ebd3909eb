#pragma once
// Files of multiple-choice examples.
//
//   llm.c    1,024 bytes of header, int32: magic 20240522, version 1, number of examples, bytes of
//            the longest; then for each example uint16: 65535, its bytes, its index, the index of
//            the answer, number of choices, and for the context and each choice the number of
//            tokens and the tokens. HellaSwag and MMLU come so.
//   JSON     lines of one object each; others are ignored, and so are empty lines:
//              "context", "ctx", "query" or "question"   text
//              "choices" or "endings"                    list of texts
//              "label", "answer" or "gold"               index from 0 on, or letter from "A" on
//            The context and each choice are encoded by themselves, as llm.c's files are. A space
//            stands before a choice, unless it begins with white space or the context ends in it.

#include <string>

#include "train/data/vocabulary.h"
#include "train/eval/multiple_choice.h"

namespace xtrain {

// Reads the file by what it begins with. Throws InputError naming file, line or example, and what
// was expected and found.
MultipleChoiceSet open_multiple_choice(const std::string& path, const Vocabulary& vocabulary);

}  // namespace xtrain
