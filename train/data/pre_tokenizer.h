#pragma once
// Cuts a text into the pieces (words, numbers, runs of signs and of spaces) that no token of a
// byte-pair encoding spans. The pieces are the matches of a regular expression and what lies
// between them, so joined they are the text.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace xtrain {

// The expressions of well-known tokenizers, as they stand in tokenizer.json.
extern const std::string_view kGpt2Pattern;
extern const std::string_view kQwen2Pattern;  // also that of Qwen3
extern const std::string_view kLlama3Pattern;

// Immutable; copies share the compiled expression, and threads may use one at once.
class PreTokenizer {
 public:
  // `pattern`: a Perl-like expression over Unicode text; \s means the property White_Space. Throws
  // InputError, beginning with `where`, for one that cannot be compiled.
  explicit PreTokenizer(std::string_view pattern, std::string_view where = "pre-tokenizer");

  // Appends the end of each piece of `text`, in order; the last is text.size(). Bytes that are not
  // valid UTF-8 are pieces of their own, one for each run of them.
  void split(std::string_view text, std::vector<size_t>& ends) const;

  const std::string& pattern() const { return pattern_; }

 private:
  struct Compiled;

  std::string pattern_;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace xtrain
