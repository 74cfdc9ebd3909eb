#pragma once
// The pieces of whole collections of documents, for learning a tokenizer from them.

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "train/data/bpe_trainer.h"
#include "train/data/document_reader.h"
#include "train/data/input_files.h"

namespace xtrain {

// Counted on `threads` threads with the result of one. on_progress is called with how far
// the reading has come; `*stop` ends the counting early. Memory grows with the number of
// different pieces alone.
PieceCounts count_documents(const std::vector<InputFile>& files, const DocumentRules& rules,
                            const PreTokenizer& pre_tokenizer, int threads,
                            const std::atomic<bool>& stop,
                            const std::function<void(const ReadPosition&)>& on_progress);

}  // namespace xtrain
