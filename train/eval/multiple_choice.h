#pragma once
// Multiple choice: which of several completions of a context does a model find most likely?
//
// The score of a completion c_1 .. c_n of a context is the sum of log p(c_i | context, c_1 ..
// c_i-1). `correct` counts examples whose answer has the highest score, `correct_norm` those whose
// answer has the highest score a token, score / n, as llm.c does it. The first of equals is chosen.
// A context is computed once and its choices behind it.

#include <cstdint>
#include <string>
#include <vector>

#include "model/tiny_transformer.h"
#include "train/eval/corpus_loss.h"

namespace xtrain {

struct MultipleChoiceExample {
  std::vector<int32_t> context;               // at least one token
  std::vector<std::vector<int32_t>> choices;  // at least two, of at least one token each
  int64_t answer = 0;                         // index of the right one
  std::string where;                          // file and line or example, for errors
};

struct MultipleChoiceSet {
  std::string name;    // the file
  std::string reader;  // how it was read, for the log
  std::vector<MultipleChoiceExample> examples;
};

struct MultipleChoiceOptions {
  int64_t batch_size = 8;  // examples computed at a time; changes no result
  int64_t seq_len = 0;     // tokens that the model sees; longer contexts are cut at the front
  Exec exec;
};

struct MultipleChoiceScore {
  int64_t examples = 0, correct = 0, correct_norm = 0;
  int64_t cut = 0;         // examples of which a context was cut
  double by_chance = 0.0;  // examples expected right by guessing

  double accuracy() const { return share(static_cast<double>(correct)); }
  double accuracy_norm() const { return share(static_cast<double>(correct_norm)); }
  double chance() const { return share(by_chance); }

 private:
  double share(double count) const { return count / static_cast<double>(examples); }
};

// Ids of the model from `vocab_size` on are padding. Throws InputError where the options do not fit
// the model, or a completion alone is longer than seq_len; Error where a loss is not finite.
MultipleChoiceScore score_multiple_choice(const Context& ctx, TinyTransformer& model,
                                          const MultipleChoiceSet& set, int64_t vocab_size,
                                          const MultipleChoiceOptions& options,
                                          const EvalProgress& progress = {});

}  // namespace xtrain
