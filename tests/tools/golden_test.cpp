// Logits, loss and every gradient of small models against PyTorch in float64, from the files that
// tools/compare_pytorch.py --write-golden has written.

#include "core/error.h"
#include "support/catch.h"
#include "support/gpu.h"
#include "support/op_tests.h"
#include "support/rejection.h"
#include "support/temporary_folder.h"
#include "support/tolerance.h"
#include "tools/model_case.h"

using namespace xtrain;

namespace {

// Every way to compute each model.
void check_golden_models(const Context& ctx) {
  for (const std::string name : {"qwen3", "gpt2"}) {
    const ModelCase model_case(text(XT_SOURCE_DIR, "/tests/golden/", name, ".safetensors"));
    for (Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
      for (AttentionKind attention : {AttentionKind::composed, AttentionKind::flash}) {
        Exec exec;
        exec.dtype = dtype;
        exec.attention = attention;
        for (const NamedValues& found : compute(ctx, model_case, exec)) {
          INFO(name << " in " << dtype << ", attention " << static_cast<int>(attention) << ": "
                    << found.name);
          const SafetensorsEntry& expected = model_case.file().at("expected." + found.name);
          CHECK(found.shape == expected.shape);
          CHECK(relative_difference(found.values, values_of(expected)) <= twin_tolerance(dtype));
        }
      }
    }
  }
}

// A model case that holds a config, whatever it says, and one parameter.
std::string write_case(const TemporaryFolder& folder, const SafetensorsWriter::Metadata& metadata) {
  const std::string path = folder.file("case");
  SafetensorsWriter writer(path, {{"model.embed_tokens.weight", "F32", {2, 3}}}, metadata);
  writer.write("model.embed_tokens.weight", std::vector<std::byte>(24));
  writer.finish();
  return path;
}

}  // namespace

TEST_CASE("models equal PyTorch's in logits, loss and every gradient", "[tools]") {
  check_golden_models(cpu_context(1));
}

TEST_CASE("models on the GPU equal PyTorch's in logits, loss and every gradient", "[cuda]") {
  check_golden_models(test_cuda_context());
}

TEST_CASE("a model case that does not hold together is refused, naming what is wrong", "[tools]") {
  const TemporaryFolder folder;
  const auto refused = [&](const SafetensorsWriter::Metadata& metadata) {
    const std::string path = write_case(folder, metadata);
    return rejection([&] { compute(cpu_context(1), ModelCase(path), Exec{}); });
  };
  const std::string model = R"({"model": {"model_type": "qwen3", "hidden_size": 4, "vocab_size": 2,
    "num_hidden_layers": 1, "num_attention_heads": 1, "max_position_embeddings": 8}})";
  const auto said = [&](const SafetensorsWriter::Metadata& metadata, const std::string& what) {
    INFO(refused(metadata));
    return refused(metadata).find(what) != std::string::npos;
  };
  CHECK(said({}, "there is no \"config\" in it"));
  CHECK(said({{"config", R"({"model": {"hidden": 4}})"}}, "model.hidden"));
  CHECK(said({{"config", model}}, "model.embed_tokens.weight must have the shape (2, 4)"));
}
