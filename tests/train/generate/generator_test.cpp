#include "train/generate/generator.h"

#include <algorithm>

#include "support/catch.h"
#include "support/model_examples.h"
#include "support/rejection.h"

using namespace xtrain;

namespace {

using Ids = std::vector<int32_t>;

// A model of each call's kind with random weights.
struct Fresh {
  Context ctx = cpu_context(1);
  TinyTransformer model;
  Exec exec;

  explicit Fresh(const ModelConfig& config, AttentionKind attention = AttentionKind::flash,
                 Dtype dtype = Dtype::f32)
      : model(ctx, config, dtype, ModelUse::inference) {
    model.initialize(ctx, 3);
    exec.attention = attention;
    exec.dtype = dtype;
  }
  Generation run(const std::vector<TextStart>& starts, const GenerateOptions& options,
                 GenerationListener* listener = nullptr) {
    return generate(ctx, model, exec, starts, options, listener);
  }
};

GenerateOptions options_of(int64_t max_new_tokens, double temperature = 0.8) {
  GenerateOptions options;
  options.max_new_tokens = max_new_tokens;
  options.sampling.temperature = temperature;
  return options;
}

std::vector<Ids> ids_of(const Generation& generation) {
  std::vector<Ids> all;
  for (const Continuation& text : generation.texts) all.push_back(text.ids);
  return all;
}

const std::vector<TextStart> kStarts{
    {{1, 2, 3}, 0}, {{4}, 0}, {{1, 2, 3}, 1}, {{5, 6, 7, 8, 9}, 7}};

}  // namespace

TEST_CASE("generation with and without the cache gives the same tokens", "[generate]") {
  for (const auto& [name, config] : small_models(11, 40)) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      for (const AttentionKind attention : {AttentionKind::composed, AttentionKind::flash}) {
        INFO(name << " in " << dtype << ", attention " << static_cast<int>(attention));
        Fresh fresh(config, attention, dtype);
        GenerateOptions options = options_of(30);
        const Generation cached = fresh.run(kStarts, options);
        options.cache = false;
        CHECK(ids_of(fresh.run(kStarts, options)) == ids_of(cached));
        CHECK(cached.texts[0].ids.size() == 30);
        CHECK(cached.texts[0].ids != cached.texts[2].ids);  // another sample of one prompt
      }
    }
  }
}

TEST_CASE("a text does not depend on the texts beside it", "[generate]") {
  Fresh fresh(small_models(11, 40)[3].config);
  GenerateOptions options = options_of(25);
  options.sampling.repetition_penalty = 1.3;
  options.sampling.top_p = 0.9;
  const Generation together = fresh.run(kStarts, options);
  for (size_t i = 0; i < kStarts.size(); ++i) {
    CHECK(fresh.run({kStarts[i]}, options).texts[0].ids == together.texts[i].ids);
  }
  options.sampling.seed = 9;
  CHECK(ids_of(fresh.run(kStarts, options)) != ids_of(together));
}

TEST_CASE("texts end at the model's positions, and without the cache a window slides",
          "[generate]") {
  constexpr int64_t kPositions = 64;
  Fresh fresh(small_models(11, kPositions)[1].config);
  const Ids prompt{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  GenerateOptions options = options_of(100);
  const Generation cached = fresh.run({{prompt, 0}, {{1}, 0}}, options);
  CHECK(cached.texts[0].ids.size() == 54);
  CHECK(cached.texts[0].ending == Ending::context_full);
  CHECK(cached.texts[1].ids.size() == 63);
  options.cache = false;
  options.slide = true;
  const Generation sliding = fresh.run({{prompt, 0}, {{1}, 0}}, options);
  CHECK(sliding.texts[0].ids.size() == 100);
  CHECK(sliding.texts[0].ending == Ending::max_new_tokens);
  for (const size_t i : {0, 1}) {
    const Ids& longer = sliding.texts[i].ids;
    const Ids& ids = cached.texts[i].ids;
    CHECK(std::equal(ids.begin(), ids.end(), longer.begin()));
  }
  // A cache does not change what a sliding window gives, nor does a longer prompt beside it.
  options.cache = true;
  CHECK(ids_of(fresh.run({{prompt, 0}, {{1}, 0}}, options)) == ids_of(sliding));
  const Ids longest(90, 3);
  CHECK(fresh.run({{longest, 0}, {prompt, 0}}, options).texts[1].ids == sliding.texts[0].ids);
  // A smaller context than the model's is kept to.
  options.slide = false;
  options.context_length = 20;
  CHECK(fresh.run({{prompt, 0}}, options).texts[0].ids.size() == 10);
}

TEST_CASE("a prompt that the model cannot see whole is refused naming both lengths", "[generate]") {
  Fresh fresh(small_models(11, 16)[0].config);
  const GenerateOptions options = options_of(5);
  CHECK(rejection([&] {
          fresh.run({{{1}, 0}, {Ids(17, 1), 0}}, options);
        }) == "a prompt of 17 tokens is longer than the 16 that the model can see");
  const Generation full = fresh.run({{Ids(16, 1), 0}}, options);  // one token may follow
  CHECK(full.texts[0].ids.size() == 1);
  CHECK(full.texts[0].ending == Ending::context_full);
  CHECK(rejection([&] {
          fresh.run({{{}, 0}}, options);
        }) == "a prompt must hold at least one token");
  CHECK(rejection([&] {
          fresh.run({{{11}, 0}}, options);
        }) == "a prompt's ids must lie in 0..10; got 11");
  CHECK(rejection([&] { fresh.run({{{-1}, 0}}, options); }).find("got -1") != std::string::npos);
  CHECK(rejection([&] { fresh.run({{{1}, 0}}, options_of(-1)); }).find("max_new_tokens") == 0);
  GenerateOptions wide = options;
  wide.context_length = 17;
  CHECK(rejection([&] {
          fresh.run({{{1}, 0}}, wide);
        }) == "context_length must be at most 16 (model.max_position_embeddings); got 17");
}

TEST_CASE("end tokens end a text and are not part of it, others go on", "[generate]") {
  Fresh fresh(small_models(11, 64)[3].config);
  GenerateOptions options = options_of(50, 1.0);
  const Generation whole = fresh.run(kStarts, options);
  options.end_ids = {whole.texts[0].ids[10], whole.texts[1].ids[20]};
  const Generation ended = fresh.run(kStarts, options);
  for (size_t i = 0; i < kStarts.size(); ++i) {
    const Ids& ids = whole.texts[i].ids;
    const auto end =
        std::find_first_of(ids.begin(), ids.end(), options.end_ids.begin(), options.end_ids.end());
    CHECK(ended.texts[i].ids == Ids(ids.begin(), end));
    CHECK(ended.texts[i].ending == (end == ids.end() ? Ending::max_new_tokens : Ending::end_token));
  }
  CHECK(ended.texts[0].ids.size() <= 10);
}

TEST_CASE("ids of padding are never drawn", "[generate]") {
  Fresh fresh(small_models(11, 64)[2].config);
  for (const double temperature : {0.0, 1.0, 100.0}) {
    GenerateOptions options = options_of(60, temperature);
    options.drawable_ids = 3;
    for (const Ids& ids : ids_of(fresh.run(kStarts, options))) {
      CHECK(std::all_of(ids.begin(), ids.end(), [](int32_t id) { return id < 3; }));
    }
  }
}

TEST_CASE("the listener hears every token in order and may end a text", "[generate]") {
  struct Ear final : GenerationListener {
    std::vector<Ids> heard{4};
    std::vector<Ending> endings{4, Ending::interrupted};
    bool on_token(int64_t text, int32_t id) override {
      heard[text].push_back(id);
      return text != 1 || heard[1].size() < 5;
    }
    void on_end(int64_t text, Ending ending) override { endings[text] = ending; }
  } ear;
  ear.heard.resize(4);
  ear.endings.assign(4, Ending::interrupted);
  Fresh fresh(small_models(11, 64)[3].config);
  const Generation generation = fresh.run(kStarts, options_of(20), &ear);
  CHECK(ear.heard == ids_of(generation));
  CHECK(generation.texts[1].ids.size() == 5);
  CHECK(generation.texts[1].ending == Ending::stopped);
  CHECK(generation.texts[3].ids.size() == 20);
  CHECK(ear.endings == std::vector<Ending>{Ending::max_new_tokens, Ending::stopped,
                                           Ending::max_new_tokens, Ending::max_new_tokens});
}

TEST_CASE("an interrupted generation gives what there is", "[generate]") {
  struct Switch final : GenerationListener {
    std::atomic<bool> off{false};
    bool on_token(int64_t, int32_t) override {
      off = true;
      return true;
    }
  } first;
  Fresh fresh(small_models(11, 64)[3].config);
  const GenerateOptions options = options_of(20);
  const Generation generation =
      generate(fresh.ctx, fresh.model, fresh.exec, kStarts, options, &first, &first.off);
  for (const Continuation& text : generation.texts) {
    CHECK(text.ids.size() == 1);
    CHECK(text.ending == Ending::interrupted);
  }
}

TEST_CASE("no tokens and no texts are legal", "[generate]") {
  Fresh fresh(small_models(11, 64)[3].config);
  CHECK(fresh.run({}, options_of(5)).texts.empty());
  const Generation none = fresh.run(kStarts, options_of(0));
  CHECK(ids_of(none) == std::vector<Ids>(4));
  CHECK(none.texts[0].ending == Ending::max_new_tokens);
}

TEST_CASE("counts of the times are those of the tokens", "[generate]") {
  Fresh fresh(small_models(11, 64)[3].config);
  const GenerateTimes times = fresh.run(kStarts, options_of(20)).times;
  CHECK(times.prompt_tokens == 12);
  CHECK(times.new_tokens == 80);
  CHECK(times.decoded_tokens == 76);  // the first of each came with the prompts
}
