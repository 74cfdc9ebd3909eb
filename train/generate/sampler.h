#pragma once
// One token drawn from a model's logits.
//
// Filters act in the order of Hugging Face's `generate`, each on what the ones before left:
//
//   1 repetition_penalty  the logit of every id that the text holds, prompt included, is divided by
//                         the penalty where it is positive and multiplied where it is negative
//   2 temperature         logits are divided by it; 0 takes the largest logit, and what follows
//                         does not matter
//   3 top_k               the k largest logits stay, and those equal to the smallest of them
//   4 top_p               of the ids in falling order of probability those stay that follow a total
//                         probability below top_p; the first always does
//   5 min_p               ids stay whose probability is at least min_p times the largest
//
// Equals are ordered by id, the lowest first. The token is drawn from what is left with a number
// that is a function of the seed, the sample's number and the token's place among the new ones, so
// that it does not depend on what else is generated.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace xtrain {

struct SamplingOptions {
  double temperature = 0.8;         // >= 0
  std::optional<int64_t> top_k;     // >= 1; none: all
  double top_p = 1.0;               // in (0, 1]
  double min_p = 0.0;               // in [0, 1]
  double repetition_penalty = 1.0;  // > 0
  uint64_t seed = 0;
};

// InputError naming the option and its range.
void validate(const SamplingOptions& options);

// Filter 1, on the logits of all ids.
void penalize_repetition(std::span<double> logits, std::span<const int32_t> text, double penalty);

// Filters 2 to 5 and the choice among what they leave; `uniform` in [0, 1). Error when a logit is
// not finite.
int32_t choose_token(std::span<const double> logits, const SamplingOptions& options,
                     double uniform);

// Token number `place` (from 0) of sample `sample`, which continues `text`. The logits are changed.
int32_t draw_token(std::span<double> logits, std::span<const int32_t> text,
                   const SamplingOptions& options, uint64_t sample, uint64_t place);

}  // namespace xtrain
