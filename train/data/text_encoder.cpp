#include "train/data/text_encoder.h"

namespace xtrain {

TextEncoder::TextEncoder(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {
  if (vocabulary.tokenizer()) bpe_.emplace(vocabulary.tokenizer());
}

void TextEncoder::encode(std::string_view text, const std::string& where, std::vector<int32_t>& ids,
                         Markers markers) {
  if (bpe_) return bpe_->encode(text, ids, markers);
  const std::vector<int32_t> more = vocabulary_.encode(text, where);
  ids.insert(ids.end(), more.begin(), more.end());
}

}  // namespace xtrain
