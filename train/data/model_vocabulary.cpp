#include "train/data/model_vocabulary.h"

#include <optional>

#include "core/error.h"
#include "train/data/tokenizer_file.h"

namespace xtrain {

ModelVocabulary model_vocabulary(const std::string& folder, int64_t vocab_size) {
  const std::optional<TokenizerFile> found = tokenizer_in(folder);
  if (!found) return {Vocabulary::ids(vocab_size), ""};
  check_input(found->vocabulary->size() <= vocab_size, found->path, ": holds ",
              found->vocabulary->size(), " tokens; the model's vocab_size is ", vocab_size);
  return {*found->vocabulary, found->path};
}

}  // namespace xtrain
