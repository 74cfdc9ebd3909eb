// Folders that hold models: this project's own and Hugging Face's.

#include "model/model_folder.h"

#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "model/hf/exported_config.h"
#include "model/hf/parameter_rows.h"
#include "model/model_checks.h"
#include "support/rejection.h"
#include "support/temporary_folder.h"
#include "support/tolerance.h"

using namespace xtrain;
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

namespace {

struct NamedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
  std::string dtype = "F32";
};

void write_tensors(const std::string& path, const std::vector<NamedTensor>& tensors) {
  std::vector<SafetensorsInfo> infos;
  for (const NamedTensor& t : tensors) infos.push_back({t.name, t.dtype, t.shape});
  SafetensorsWriter writer(path, infos);
  for (const NamedTensor& t : tensors) {
    std::vector<std::byte> bytes(t.values.size() *
                                 static_cast<size_t>(safetensors_item_size(t.dtype)));
    convert_elements(ElementType::f32, std::as_bytes(std::span(t.values)),
                     *element_type_from_name(t.dtype), bytes);
    writer.write(t.name, bytes);
  }
  writer.finish();
}

std::vector<int64_t> sizes(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

// The tensors of a layout, cut out of the model's parameters here by plain loops.
std::vector<NamedTensor> tensors_of(const Context& ctx, TinyTransformer& model,
                                    const ModelLayout& layout) {
  std::vector<NamedTensor> tensors;
  for (const ParameterLayout& p : layout.parameters) {
    const std::vector<float> all = to_host<float>(ctx, model.parameters().find(p.parameter)->value);
    const int64_t columns = row_elements(p.shape);
    int64_t row = 0;
    for (const TensorPiece& piece : p.pieces) {
      NamedTensor tensor{piece.tensor, sizes(piece.shape), {}};
      for (int64_t i = 0; i < piece.rows * columns; ++i) {
        const int64_t r = piece.transposed ? i % piece.rows : i / columns;
        const int64_t c = piece.transposed ? i / piece.rows : i % columns;
        tensor.values.push_back(all[static_cast<size_t>((row + r) * columns + c)]);
      }
      row += piece.rows;
      tensors.push_back(tensor);
    }
  }
  return tensors;
}

std::vector<NamedConfig> hugging_face_models() {
  std::vector<NamedConfig> models = small_models();
  models.resize(4);  // one of each model_type
  return models;
}

// A Hugging Face folder of the model.
void write_folder(const TemporaryFolder& folder, const ModelConfig& config,
                  const std::vector<NamedTensor>& tensors) {
  folder.write("config.json", hugging_face_config_json(config, {}, ElementType::f32));
  write_tensors(folder.file("model.safetensors"), tensors);
}

TinyTransformer& filled(const Context& ctx, TinyTransformer& model) {
  model.initialize(ctx, 5);
  return model;
}

void require_equal(const Context& ctx, TinyTransformer& a, TinyTransformer& b) {
  for (Parameter& p : a.parameters().list()) {
    INFO(p.name);
    CHECK(as_doubles(ctx, p.value) == as_doubles(ctx, b.parameters().find(p.name)->value));
  }
}

}  // namespace

TEST_CASE("layouts list the model's parameters with their shapes", "[model_folder]") {
  const Context ctx = cpu_context(1);
  for (const auto& [name, config] : small_models()) {
    INFO(name);
    TinyTransformer model(ctx, config, Dtype::f32);
    const ModelLayout layout = own_layout(config);
    REQUIRE(layout.parameters.size() == model.parameters().list().size());
    for (size_t i = 0; i < layout.parameters.size(); ++i) {
      CHECK(layout.parameters[i].parameter == model.parameters().list()[i].name);
      CHECK(layout.parameters[i].shape == model.parameters().list()[i].shape);
    }
  }
}

TEST_CASE("a Hugging Face folder of every layout loads bit for bit", "[model_folder]") {
  const Context ctx = cpu_context(1);
  for (const auto& [name, plain] : hugging_face_models()) {
    for (const bool tied : {false, true}) {
      INFO(name << (tied ? ", tied" : ", untied"));
      ModelConfig config = plain;
      config.tie_word_embeddings = tied;
      const TemporaryFolder folder;
      TinyTransformer source(ctx, config, Dtype::f32), target(ctx, config, Dtype::f32);
      write_folder(folder, config,
                   tensors_of(ctx, filled(ctx, source), hugging_face_layout(config)));
      const ModelFolder model(folder.path.string());
      CHECK(model.is_hugging_face());
      CHECK(model.config() == config);
      model.load(ctx, target.parameters());
      require_equal(ctx, source, target);
    }
  }
}

TEST_CASE("rows of a parameter are those of the whole", "[model_folder]") {
  const Context ctx = cpu_context(1);
  for (const auto& [name, config] : hugging_face_models()) {
    const TemporaryFolder folder;
    TinyTransformer source(ctx, config, Dtype::f32);
    write_folder(folder, config, tensors_of(ctx, filled(ctx, source), hugging_face_layout(config)));
    const ModelFolder model(folder.path.string());
    for (Parameter& p : source.parameters().list()) {
      INFO(name << " " << p.name);
      const int64_t first = p.shape[0] / 3, count = p.shape[0] / 2;
      Tensor rows = empty(ctx, p.value.slice(0, first, count).shape(), Dtype::f32);
      model.load(ctx, p.name, rows, first);
      CHECK(to_host<float>(ctx, rows) == to_host<float>(ctx, p.value.slice(0, first, count)));
    }
  }
}

TEST_CASE("a matrix held by columns has the values of its rows, however large", "[model_folder]") {
  const Context ctx = cpu_context(1);
  ModelConfig config = hugging_face_models()[0].config;
  config.num_hidden_layers = config.num_attention_heads = config.num_key_value_heads = 1;
  config.hidden_size = config.head_dim = 256;
  config.intermediate_size = 8500;  // 2.2 million elements a matrix: more than are read at once
  const TemporaryFolder folder;
  TinyTransformer source(ctx, config, Dtype::f32);
  write_folder(folder, config, tensors_of(ctx, filled(ctx, source), hugging_face_layout(config)));
  TinyTransformer held(ctx, config, Dtype::f32, ModelUse::inference);
  ModelFolder(folder.path.string()).load(ctx, held.parameters());
  bool by_columns = false;
  for (const Parameter& p : source.parameters().list()) {
    const Tensor value = held.parameters().find(p.name)->value;
    by_columns |= value.rank() == 2 && value.stride(0) == 1 && p.shape[1] > 1;
    INFO(p.name);
    CHECK((to_host<float>(ctx, contiguous(ctx, value)) == to_host<float>(ctx, p.value)));
  }
  CHECK(by_columns);
}

TEST_CASE("logits of transformers' models are those that transformers computes", "[model_folder]") {
  const Context ctx = cpu_context(1);
  for (const std::string layout : {"gpt2", "llama", "qwen2", "qwen3"}) {
    const std::string path = XT_SOURCE_DIR "/tests/golden/transformers/" + layout;
    const ModelFolder folder(path);
    CHECK(folder.notes().empty());
    CHECK(name_of(folder.config().model_type) == layout);
    CHECK(folder.config().tie_word_embeddings == (layout == "gpt2" || layout == "qwen2"));
    const SafetensorsFile golden(path + "/logits.safetensors");
    std::vector<int32_t> ids(24);
    std::memcpy(ids.data(), golden.at("inputs").bytes.data(), 4 * ids.size());
    std::vector<double> expected(24 * 13);
    std::memcpy(expected.data(), golden.at("logits").bytes.data(), 8 * expected.size());
    for (const AttentionKind attention : kBothAttentions) {
      TinyTransformer model(ctx, folder.config(), Dtype::f32);
      folder.load(ctx, model.parameters());
      const Var logits =
          model.logits(ctx, nullptr, token_batch(ctx, ids, {}, 2), exec_of(Dtype::f32, attention));
      INFO(layout);
      CHECK(relative_difference(as_doubles(ctx, logits.value), expected) <=
            twin_tolerance(Dtype::f32));
    }
  }
}

TEST_CASE("Llama's tensors have the shapes that heads and widths give", "[model_folder]") {
  ModelConfig config = hugging_face_models()[3].config;  // Qwen3
  config.hidden_size = 64;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 32;
  std::map<std::string, Shape> shapes;
  for (const ParameterLayout& p : hugging_face_layout(config).parameters) {
    for (const TensorPiece& piece : p.pieces) shapes.emplace(piece.tensor, piece.shape);
  }
  const std::string layer = "model.layers.1.self_attn.";
  CHECK(shapes.at(layer + "q_proj.weight") == Shape{128, 64});
  CHECK(shapes.at(layer + "k_proj.weight") == Shape{64, 64});
  CHECK(shapes.at(layer + "v_proj.weight") == Shape{64, 64});
  CHECK(shapes.at(layer + "o_proj.weight") == Shape{64, 128});
  CHECK(shapes.at(layer + "q_norm.weight") == Shape{32});
  CHECK(shapes.at(layer + "k_norm.weight") == Shape{32});
}

TEST_CASE("a head of Qwen3 is as wide as its norm where the config does not say",
          "[model_folder]") {
  const Context ctx = cpu_context(1);
  const ModelConfig config = hugging_face_models()[3].config;
  const TemporaryFolder folder;
  TinyTransformer source(ctx, config, Dtype::f32);
  write_folder(folder, config, tensors_of(ctx, filled(ctx, source), hugging_face_layout(config)));
  Json json = Json::parse(folder.read("config.json"));
  json.erase("head_dim");
  folder.write("config.json", json.dump());
  CHECK(ModelFolder(folder.path.string()).config() == config);
}

TEST_CASE("names may come without the decoder's prefix, and buffers beside weights",
          "[model_folder]") {
  const Context ctx = cpu_context(1);
  for (const auto& [name, plain] : hugging_face_models()) {
    INFO(name);
    ModelConfig config = plain;
    config.tie_word_embeddings = true;
    const TemporaryFolder folder;
    TinyTransformer source(ctx, config, Dtype::f32), target(ctx, config, Dtype::f32);
    const ModelLayout layout = hugging_face_layout(config, false);
    std::vector<NamedTensor> tensors = tensors_of(ctx, filled(ctx, source), layout);
    for (const std::string& buffer : layout.ignored) tensors.push_back({buffer, {1, 3}, {1, 2, 3}});
    CHECK(tensors[0].name == (name == "gpt2" ? "wte.weight" : "embed_tokens.weight"));
    write_folder(folder, config, tensors);
    ModelFolder(folder.path.string()).load(ctx, target.parameters());
    require_equal(ctx, source, target);
  }
}

TEST_CASE("tensors of every floating type are cast to the parameter's dtype", "[model_folder]") {
  const Context ctx = cpu_context(1);
  const ModelConfig config = hugging_face_models()[0].config;
  TinyTransformer source(ctx, config, Dtype::f32);
  std::vector<NamedTensor> tensors =
      tensors_of(ctx, filled(ctx, source), hugging_face_layout(config));
  const char* const types[] = {"F16", "BF16", "F64", "F32"};
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].dtype = types[i % 4];
    // Multiples of 1/64 below 2 are exact in all of them.
    for (float& value : tensors[i].values) value = std::round(value * 64) / 64;
  }
  for (Parameter& p : source.parameters().list()) {
    std::vector<float> values = to_host<float>(ctx, p.value);
    for (float& value : values) value = std::round(value * 64) / 64;
    copy(ctx, from_host(ctx, values, p.shape), p.value);
  }
  const TemporaryFolder folder;
  write_folder(folder, config, tensors);
  for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    TinyTransformer target(ctx, config, dtype);
    ModelFolder(folder.path.string()).load(ctx, target.parameters());
    require_equal(ctx, source, target);
  }
}

namespace {

// What is said of a Llama folder whose tensors or config are changed.
std::string refusal(bool tied, const std::function<void(std::vector<NamedTensor>&)>& change,
                    const std::function<void(Json&)>& change_config = {}) {
  const Context ctx = cpu_context(1);
  ModelConfig config = hugging_face_models()[1].config;
  config.tie_word_embeddings = tied;
  TinyTransformer source(ctx, config, Dtype::f32);
  std::vector<NamedTensor> tensors =
      tensors_of(ctx, filled(ctx, source), hugging_face_layout(config));
  if (change) change(tensors);
  const TemporaryFolder folder;
  write_folder(folder, config, tensors);
  if (change_config) {
    Json json = Json::parse(folder.read("config.json"));
    change_config(json);
    folder.write("config.json", json.dump());
  }
  const std::string said = rejection([&] {
    TinyTransformer target(ctx, config, Dtype::f32);
    ModelFolder(folder.path.string()).load(ctx, target.parameters());
  });
  return said;
}

bool mentions(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

NamedTensor& named(std::vector<NamedTensor>& tensors, const std::string& name) {
  return *std::find_if(tensors.begin(), tensors.end(),
                       [&](const NamedTensor& t) { return t.name == name; });
}

}  // namespace

TEST_CASE("tied models need no head, untied ones do", "[model_folder]") {
  const auto add_head = [](std::vector<NamedTensor>& tensors) {
    tensors.push_back(tensors[0]);
    tensors.back().name = "lm_head.weight";
  };
  const auto tie = [](bool tied) {
    return [tied](Json& json) { json["tie_word_embeddings"] = tied; };
  };
  CHECK(refusal(true, {}) == "accepted");
  CHECK(refusal(true, add_head) == "accepted");
  CHECK(refusal(false, {}) == "accepted");
  CHECK(mentions(refusal(true, {}, tie(false)),
                 "tensor lm_head.weight is missing; the config needs it, since "
                 "tie_word_embeddings is false"));
  CHECK(mentions(refusal(true,
                         [&](std::vector<NamedTensor>& tensors) {
                           add_head(tensors);
                           tensors.back().values[5] += 1;
                         }),
                 "tensor lm_head.weight must equal model.embed_tokens.weight"));
}

TEST_CASE("tensors that are missing, left over or of another shape are named", "[model_folder]") {
  const std::string k = "model.layers.1.self_attn.k_proj.weight";
  CHECK(mentions(refusal(false, [&](auto& t) { named(t, k).name = "model.other"; }),
                 "tensor " + k + " is missing"));
  CHECK(mentions(refusal(false,
                         [&](auto& t) {
                           t.push_back({"model.layers.2.x", {1}, {0}});
                         }),
                 "tensor model.layers.2.x has no place"));
  CHECK(mentions(refusal(false,
                         [&](auto& t) {
                           named(t, k).shape = {24, 12};
                         }),
                 "tensor " + k + " has shape (24, 12); the config needs (12, 24)"));
  CHECK(mentions(
      refusal(false,
              [&](auto& t) {
                named(t, "model.norm.weight") = {"model.norm.weight", {24}, std::vector<float>(24)};
                named(t, "model.norm.weight").shape = {24, 1};
              }),
      "tensor model.norm.weight has shape (24, 1)"));
  CHECK(mentions(refusal(false, {}, [](Json& json) { json["num_hidden_layers"] = 3; }),
                 "tensor model.layers.2.input_layernorm.weight is missing"));
  CHECK(mentions(refusal(false, {}, [](Json& json) { json["num_hidden_layers"] = 1; }),
                 "has no place"));
}

TEST_CASE("a value that is no finite number is refused with its tensor", "[model_folder]") {
  const std::string layer = "model.layers.1.";
  for (const std::string& name :
       {std::string("model.embed_tokens.weight"), layer + "self_attn.q_proj.weight",
        layer + "self_attn.k_proj.weight", layer + "self_attn.v_proj.weight",
        layer + "mlp.up_proj.weight", std::string("model.norm.weight")}) {
    for (const float wrong : {NAN, INFINITY, -INFINITY}) {
      for (const bool last : {false, true}) {
        const std::string said = refusal(false, [&](auto& t) {
          std::vector<float>& values = named(t, name).values;
          (last ? values.back() : values.front()) = wrong;
        });
        CHECK(mentions(said, "model.safetensors: tensor " + name +
                                 " must hold finite numbers; one is infinite, too large for F32 "
                                 "or not a number"));
      }
    }
  }
}

TEST_CASE("a value beyond the dtype of the computation is refused", "[model_folder]") {
  const Context ctx = cpu_context(1);
  const ModelConfig config = hugging_face_models()[0].config;  // with tensors that are turned
  TinyTransformer source(ctx, config, Dtype::f32);
  auto tensors = tensors_of(ctx, filled(ctx, source), hugging_face_layout(config));
  NamedTensor& turned = named(tensors, "transformer.h.1.mlp.c_fc.weight");
  turned.values[7] = 3.4e38f;
  const TemporaryFolder folder;
  write_folder(folder, config, tensors);
  const ModelFolder model(folder.path.string());
  TinyTransformer whole(ctx, config, Dtype::f32), rounded(ctx, config, Dtype::bf16);
  CHECK_NOTHROW(model.load(ctx, whole.parameters()));
  CHECK(mentions(rejection([&] { model.load(ctx, rounded.parameters()); }),
                 "tensor transformer.h.1.mlp.c_fc.weight must hold finite numbers; one is "
                 "infinite, too large for BF16 or not a number"));
}

TEST_CASE("a folder of this project's layout", "[model_folder]") {
  const Context ctx = cpu_context(1);
  const ModelConfig config = small_models()[6].config;  // learned positions
  TinyTransformer source(ctx, config, Dtype::f32), target(ctx, config, Dtype::f32);
  const TemporaryFolder folder;
  const std::string json = R"({"model": {
      "model_type": "llama", "vocab_size": 11, "hidden_size": 24, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 20,
      "max_position_embeddings": 16, "positions": "learned", "initializer_range": 0.3},
      "train": {"anything": 1}})";
  folder.write("config.json", json);
  write_tensors(folder.file("model.safetensors"),
                tensors_of(ctx, filled(ctx, source), own_layout(config)));
  const ModelFolder model(folder.path.string());
  CHECK(model.path() == folder.path.string());
  CHECK_FALSE(model.is_hugging_face());
  CHECK(model.config() == config);
  model.load(ctx, target.parameters());
  require_equal(ctx, source, target);
  TinyTransformer other(ctx, small_models()[1].config, Dtype::f32);
  CHECK(mentions(rejection([&] { model.load(ctx, other.parameters()); }), "parameters"));
}

TEST_CASE("a path that holds no model is refused in one line", "[model_folder]") {
  const TemporaryFolder folder;
  const auto said = [&](const std::string& path) {
    return rejection([&] { ModelFolder model(path); });
  };
  CHECK(mentions(said(folder.file("none")), "must be a folder that holds a model"));
  CHECK(mentions(said(folder.write("file", "x")), "must be a folder that holds a model"));
  CHECK(mentions(said(folder.path.string()), "holds neither model.safetensors nor"));
  write_tensors(folder.file("model.safetensors"), {{"a", {1}, {0}}});
  CHECK(mentions(said(folder.path.string()), "config.json"));
  folder.write("config.json", "{}");
  CHECK(mentions(said(folder.path.string()), "must have a model_type"));
  folder.write("config.json", R"({"model": 3})");
  CHECK(mentions(said(folder.path.string()), "section \"model\" must be an object"));
  folder.write("config.json", R"({"model": {"model_type": "llama"}})");
  CHECK(mentions(said(folder.path.string()), "is required and missing"));
}
