#pragma once
// Tokenizers that tests need no files of others for.

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/mapped_file.h"
#include "train/data/bpe_tokenizer.h"
#include "train/data/tokenizer_json.h"

namespace xtrain {

inline const nlohmann::json& golden_tokenizers() {
  static const auto kGolden =
      nlohmann::json::parse(MappedFile(XT_SOURCE_DIR "/tests/golden/tokenizers.json").text());
  return kGolden;
}

// "gpt2", "qwen2" or "llama3": a small vocabulary with the pattern of that name.
inline std::string small_tokenizer_json(const std::string& name) {
  return golden_tokenizers()["small"][name]["tokenizer"].dump();
}

inline std::shared_ptr<const BpeTokenizer> small_tokenizer(const std::string& name) {
  return std::make_shared<BpeTokenizer>(parse_tokenizer_json(small_tokenizer_json(name), name));
}

// At least `bytes` of text of many scripts, the same for the same seed.
inline std::string mixed_text(size_t bytes, uint64_t seed = 1) {
  static const auto kSnippets = golden_tokenizers()["snippets"].get<std::vector<std::string>>();
  std::string text;
  for (uint64_t state = seed; text.size() < bytes;) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    text += kSnippets[(state >> 33) % kSnippets.size()];
  }
  return text;
}

}  // namespace xtrain
