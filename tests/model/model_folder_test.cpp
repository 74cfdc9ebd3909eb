// Folders that hold models: this project's own and Hugging Face's.

#include "model/model_folder.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "model/hf/hugging_face_config.h"
#include "model/hf/parameter_rows.h"
#include "model/model_checks.h"
#include "support/rejection.h"
#include "support/temporary_folder.h"

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
