#include <cmath>
#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/tolerance.h"
#include "tools/program_runs.h"

using namespace xtrain;

namespace {

// Room for what a measurement decodes.
constexpr const char* kConfig = R"({
  "model": {"model_type": "qwen3", "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2,
            "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
            "intermediate_size": 24, "max_position_embeddings": 512, "tie_word_embeddings": true}})";

}  // namespace

TEST_CASE("bench_decode counts what a token reads", "[tools]") {
  const Workplace place;
  place.write("model.json", kConfig);
  const Finished run = place.run("bench_decode",
                                 "--config model.json --device cpu --dtype f32 --contexts 4 20 "
                                 "--rows 3 --json");
  INFO(run.err);
  REQUIRE(run.code == 0);
  const auto result = nlohmann::json::parse(run.out);
  const auto close = [](double a, double b) {
    return std::abs(a / b - 1.0) <= tolerance(Dtype::f64);
  };
  // Embedding and last norm; of a layer the projections, the MLP, two norms, those of q and k.
  const int64_t layer = 16 * (16 + 8 + 8 + 16) + 3 * 16 * 24 + 2 * 16 + 2 * 8;
  const int64_t weights = 40 * 16 + 16 + 2 * layer;
  REQUIRE(result["rows"].size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    const auto& row = result["rows"][i];
    const int64_t context = i == 0 ? 4 : 20;
    const int64_t keys_and_values = 2 * 2 * 3 * context * 8;
    CHECK(row["context"] == context);
    CHECK(row["rows"] == 3);
    const double gb = row["gb_read"], seconds = row["ms"].get<double>() / 1e3;
    CHECK(close(gb, 4e-9 * static_cast<double>(weights + keys_and_values)));
    CHECK(close(row["tokens_per_s"], 3 / seconds));
    CHECK(close(row["of_copy_rate"], gb / result["copy_gb_per_s"].get<double>() / seconds));
    CHECK(row["generate_tokens_per_s"] > 0.0);
  }
}

TEST_CASE("bench_decode refuses what it cannot measure", "[tools]") {
  const Workplace place;
  place.write("model.json", kConfig);
  CHECK(place.run("bench_decode", "--config nothing.json --device cpu").code == 2);
  CHECK(place.run("bench_decode", "--config model.json --device gpu").code == 2);
  for (const std::string dtype : {"f16", "i32"}) {
    INFO(dtype);
    CHECK(place.run("bench_decode", "--config model.json --device cpu --dtype " + dtype).code == 2);
  }
  CHECK(place.run("bench_decode", "--config model.json --device cpu --rows 0").code == 2);
}
