#include <algorithm>

#include "support/catch.h"
#include "train/learn_by_heart.h"

using namespace xtrain;

TEST_CASE("every model kind learns one batch by heart and writes it down again", "[train]") {
  check_every_kind_learns_by_heart(cpu_context(1));
}

TEST_CASE("samples depend on seed and options, and never on how many are drawn", "[train]") {
  const Context ctx = cpu_context(1);
  TinyTransformer model(ctx, small_models(RowsToLearn::kVocab, 16)[1].config, Dtype::f32);
  model.initialize(ctx, 3);
  SampleOptions options;
  options.max_new_tokens = 40;  // beyond the model's positions: the text is cut at the front
  options.context_length = 16;
  const auto three = sample(ctx, model, Exec{}, {1, 2}, 3, options);
  CHECK(three[0].size() == 42);
  CHECK(three[0] != three[1]);
  CHECK(sample(ctx, model, Exec{}, {1, 2}, 1, options)[0] == three[0]);
  options.seed = 9;
  CHECK(sample(ctx, model, Exec{}, {1, 2}, 1, options)[0] != three[0]);
  options.vocab_size = 2;  // ids 2 and above are padding
  const std::vector<int32_t> ids = sample(ctx, model, Exec{}, {1}, 1, options)[0];
  CHECK(std::all_of(ids.begin(), ids.end(), [](int32_t id) { return id < 2; }));
}
