#include "model/streamed_weights.h"

#include "core/config_writer.h"
#include "core/error.h"
#include "model/hf/safetensors.h"
#include "model/model_checks.h"
#include "model/model_folder.h"
#include "support/temporary_folder.h"

using namespace xtrain;

namespace {

using Rows = std::vector<std::vector<int32_t>>;

// A folder that holds the model in f32 under its own names.
void write_folder(const Context& ctx, const TemporaryFolder& folder, TinyTransformer& model) {
  ModelConfig config = model.config();
  folder.write("config.json", config_to_json({{"model", config_fields(config)}}));
  std::vector<SafetensorsInfo> infos;
  for (const Parameter& p : model.parameters().list()) {
    infos.push_back({p.name, "F32", {p.shape.begin(), p.shape.end()}});
  }
  SafetensorsWriter writer(folder.file("model.safetensors"), infos);
  for (const Parameter& p : model.parameters().list()) {
    const std::vector<float> values = to_host<float>(ctx, p.value);
    writer.write(p.name, std::as_bytes(std::span(values)));
  }
  writer.finish();
}

// The logits behind rows, and then behind some tokens more.
std::vector<std::vector<double>> logits_of(const Context& ctx, TinyTransformer& model,
                                           const Exec& exec) {
  const Rows rows{{1, 2, 3, 4, 5}, {9, 9}, {0, 7, 3}};
  std::vector<std::vector<double>> all{as_doubles(ctx, model.next_logits(ctx, rows, exec))};
  KvCache cache(ctx, model.config(), 3, 16, exec);
  all.push_back(as_doubles(ctx, model.prefill(ctx, cache, rows, exec)));
  for (int32_t n = 0; n < 5; ++n) {
    const Tensor tokens = from_host(ctx, std::vector<int32_t>{n, 10 - n, n + 3}, {3});
    all.push_back(as_doubles(ctx, model.decode(ctx, cache, tokens, exec)));
  }
  return all;
}

}  // namespace

TEST_CASE("streamed weights give the bits of held ones", "[model]") {
  const Context ctx = cpu_context(1);
  for (const auto& [name, plain] : small_models()) {
    for (const int64_t layers : {1, 2, 3}) {
      ModelConfig config = plain;
      config.num_hidden_layers = layers;
      const TemporaryFolder folder;
      TinyTransformer source(ctx, config, Dtype::f32, ModelUse::inference);
      source.initialize(ctx, 3);
      write_folder(ctx, folder, source);
      const ModelFolder files(folder.path.string());
      for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
        INFO(name << ", " << layers << " layers in " << dtype);
        const Exec exec = exec_of(dtype, AttentionKind::flash);
        TinyTransformer held(ctx, config, dtype, ModelUse::inference);
        files.load(ctx, held.parameters());
        TinyTransformer model(ctx, config, dtype, ModelUse::streamed);
        StreamedWeights weights(ctx, files, model.parameters(), dtype);
        model.read_tables_from(weights);
        CHECK(logits_of(ctx, model, exec) == logits_of(ctx, held, exec));
      }
    }
  }
}

TEST_CASE("a model with streamed weights takes the memory of two layers", "[model]") {
  const Context ctx = cpu_context(1);
  ModelConfig config = small_models(3000)[3].config;
  config.hidden_size = 128;
  config.head_dim = 32;
  config.intermediate_size = 512;
  config.num_hidden_layers = 12;
  const TemporaryFolder folder;
  int64_t all = 0;
  {
    TinyTransformer source(ctx, config, Dtype::f32, ModelUse::inference);
    source.initialize(ctx, 3);
    write_folder(ctx, folder, source);
    all = source.parameters().values().nbytes();
  }
  const ModelFolder files(folder.path.string());
  const Exec exec = exec_of(Dtype::f32, AttentionKind::flash);
  const int64_t before = ctx.allocator->current_bytes();
  ctx.allocator->reset_peak();
  TinyTransformer model(ctx, config, Dtype::f32, ModelUse::streamed);
  StreamedWeights weights(ctx, files, model.parameters(), Dtype::f32);
  model.read_tables_from(weights);
  logits_of(ctx, model, exec);
  const int64_t peak = ctx.allocator->peak_bytes() - before;
  const int64_t tables = 2 * config.vocab_size * config.hidden_size * size_of(Dtype::f32);
  const int64_t layer = (all - tables) / config.num_hidden_layers;
  INFO("peak " << peak << " of " << all << ", a layer " << layer);
  // Two layers; the head's blocks, which here are two copies of all its rows; what a pass computes.
  CHECK(peak < 2 * layer + tables + (1 << 20));
  CHECK(peak < all / 2);
}

TEST_CASE("ids outside a streamed table are refused", "[model]") {
  const Context ctx = cpu_context(1);
  const ModelConfig config = small_models()[1].config;
  const TemporaryFolder folder;
  TinyTransformer source(ctx, config, Dtype::f32, ModelUse::inference);
  source.initialize(ctx, 3);
  write_folder(ctx, folder, source);
  const ModelFolder files(folder.path.string());
  TinyTransformer model(ctx, config, Dtype::f32, ModelUse::streamed);
  StreamedWeights weights(ctx, files, model.parameters(), Dtype::f32);
  model.read_tables_from(weights);
  const Exec exec = exec_of(Dtype::f32, AttentionKind::flash);
  CHECK_THROWS_AS(model.next_logits(ctx, Rows{{11}}, exec), Error);
  CHECK_THROWS_AS(model.next_logits(ctx, Rows{{-1}}, exec), Error);
}
