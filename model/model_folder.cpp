#include "model/model_folder.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "core/config_reader.h"
#include "core/copy.h"
#include "core/error.h"
#include "core/mapped_file.h"
#include "model/hf/hugging_face_config.h"
#include "model/hf/parameter_rows.h"

namespace xtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kConfig = "config.json";

std::string checked_folder(const std::string& path) {
  std::error_code ignored;
  check_input(fs::is_directory(path, ignored), path,
              ": must be a folder that holds a model: config.json and model.safetensors");
  return path;
}

std::vector<int64_t> sizes_of(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

// `rows` of the parameter, from `first` on, as they were read from the files at `path`.
void check_finite(const std::string& path, const ParameterLayout& parameter, int64_t first,
                  ElementType type, std::span<const std::byte> rows) {
  const std::optional<int64_t> wrong = first_not_finite(type, rows);
  if (!wrong) return;
  int64_t row = first + *wrong / row_elements(parameter.shape);
  size_t piece = 0;
  while (row >= parameter.pieces[piece].rows) row -= parameter.pieces[piece++].rows;
  reject_input(path, ": tensor ", parameter.pieces[piece].tensor,
               " must hold finite numbers; one is infinite, too large for ", name_of(type),
               " or not a number; take other weights");
}

// Bytes of rows into a tensor that may lie by columns.
void put_rows(const Context& ctx, std::span<const std::byte> bytes, const Tensor& target) {
  if (target.is_contiguous()) return copy_from_host(ctx, bytes, target);
  const Tensor rows = empty_like(ctx, target);
  copy_from_host(ctx, bytes, rows);
  copy(ctx, rows.transpose(0, 1), target.transpose(0, 1));  // in the order in which it is written
}

}  // namespace

ModelFolder::ModelFolder(const std::string& path) : path_(checked_folder(path)), tensors_(path_) {
  read_config();
  layout_ = is_hugging_face_ ? hugging_face_layout(config_, has_prefix()) : own_layout(config_);
  for (size_t i = 0; i < layout_.parameters.size(); ++i) {
    index_.emplace(layout_.parameters[i].parameter, i);
  }
  check_tensors();
}

void ModelFolder::read_config() {
  const std::string path = (fs::path(path_) / kConfig).string();
  const MappedFile file(path);
  const Json json = Json::parse(checked_json_object(file.text(), path));
  is_hugging_face_ = json.contains("model_type");
  if (is_hugging_face_) {
    HuggingFaceConfig read = read_hugging_face_config(file.text(), path);
    config_ = read.model;
    ignored_keys_ = std::move(read.ignored_keys);
    // Where the config leaves it open, the weights are asked.
    const SafetensorsEntry* norm = nullptr;
    for (const char* prefix : {"model.", ""}) {
      if (!norm) norm = tensors_.find(text(prefix, "layers.0.self_attn.q_norm.weight"));
    }
    if (!read.head_dim_given && norm && norm->shape.size() == 1) {
      config_.head_dim = norm->shape[0];
      validate(config_);
    }
    return;
  }
  check_input(json.contains("model"), path,
              ": must have a model_type, as Hugging Face's have, or a section \"model\"");
  ConfigReader reader;
  reader.add_json(Json{{"model", json["model"]}}.dump(), path);
  config_ = read_model_config(reader);
  check_input(config_.vocab_size > 0, path, ": model.vocab_size must be at least 1; got 0");
}

std::vector<std::string> ModelFolder::notes() const {
  std::vector<std::string> notes;
  for (const std::string& key : ignored_keys_) {
    notes.push_back(text(path_, "/", kConfig, ": key ", key, " is not known; passed over"));
  }
  return notes;
}

bool ModelFolder::has_prefix() const {
  const std::string prefix = hugging_face_prefix(config_.model_type);
  const auto& entries = tensors_.entries();
  const auto first = entries.lower_bound(prefix);
  return first != entries.end() && first->first.starts_with(prefix);
}

void ModelFolder::check_tensors() const {
  std::set<std::string> expected(layout_.ignored.begin(), layout_.ignored.end());
  if (!layout_.tied_head.empty()) expected.insert(layout_.tied_head);
  for (const ParameterLayout& parameter : layout_.parameters) {
    for (const TensorPiece& piece : parameter.pieces) {
      expected.insert(piece.tensor);
      const SafetensorsEntry* entry = tensors_.find(piece.tensor);
      check_input(entry != nullptr, tensors_.path(), ": tensor ", piece.tensor,
                  " is missing; the config needs it",
                  piece.tensor == "lm_head.weight" ? ", since tie_word_embeddings is false" : "");
      check_input(entry->shape == sizes_of(piece.shape), tensors_.path(), ": tensor ", piece.tensor,
                  " has shape ", shape_text(entry->shape), "; the config needs ", piece.shape);
      check_input(element_type_from_name(entry->dtype).has_value(), tensors_.path(), ": tensor ",
                  piece.tensor, " is of ", entry->dtype, "; it must be F64, F32, BF16 or F16");
    }
  }
  for (const auto& [name, entry] : tensors_.entries()) {
    check_input(expected.contains(name), tensors_.path(), ": tensor ", name,
                " has no place in the model that the config describes");
  }
}

void ModelFolder::check_tied_head() const {
  const SafetensorsEntry* head =
      layout_.tied_head.empty() ? nullptr : tensors_.find(layout_.tied_head);
  if (!head) return;
  const SafetensorsEntry& embedding = tensors_.at(layout_.tied_to);
  check_input(head->shape == embedding.shape && head->dtype == embedding.dtype &&
                  std::equal(head->bytes.begin(), head->bytes.end(), embedding.bytes.begin()),
              tensors_.path(), ": tensor ", layout_.tied_head, " must equal ", layout_.tied_to,
              ", since tie_word_embeddings is true; it does not");
}

const ParameterLayout& ModelFolder::layout_of(const std::string& parameter) const {
  const auto found = index_.find(parameter);
  check_input(found != index_.end(), path_, ": the model has no parameter ", parameter);
  return layout_.parameters[found->second];
}

void ModelFolder::load(const Context& ctx, ParameterSet& parameters) const {
  check_tied_head();
  check_input(parameters.list().size() == layout_.parameters.size(), path_, ": the model has ",
              layout_.parameters.size(), " parameters; ", parameters.list().size(), " are wanted");
  for (Parameter& parameter : parameters.list()) load(ctx, parameter);
}

void ModelFolder::load(const Context& ctx, Parameter& parameter) const {
  const ParameterLayout& layout = layout_of(parameter.name);
  check_input(layout.shape == parameter.shape, path_, ": parameter ", parameter.name, " has shape ",
              layout.shape, "; ", parameter.shape, " is wanted");
  load(ctx, parameter.name, parameter.value);
}

void ModelFolder::load(const Context& ctx, const std::string& parameter, Tensor target,
                       int64_t first_row) const {
  const ParameterLayout& layout = layout_of(parameter);
  Shape rows = layout.shape;
  if (target.rank() > 0) rows[0] = target.size(0);
  check(target.shape() == rows && first_row >= 0 && first_row + rows[0] <= layout.shape[0],
        "ModelFolder::load: rows of ", parameter, " ", layout.shape, " are wanted as ",
        target.shape(), " from row ", first_row);
  const ElementType type = element_type_of(target.dtype());
  const int64_t row_bytes = row_elements(rows) * size_of(type), block = rows_at_a_time(rows);
  std::vector<std::byte> bytes(static_cast<size_t>(std::min(block, rows[0]) * row_bytes));
  for (int64_t row = 0; row < rows[0]; row += block) {
    const int64_t count = std::min(block, rows[0] - row);
    const auto some = std::span(bytes).first(static_cast<size_t>(count * row_bytes));
    read_rows(tensors_, layout, first_row + row, type, some);
    check_finite(tensors_.path(), layout, first_row + row, type, some);
    put_rows(ctx, some, target.slice(0, row, count));
  }
}

}  // namespace xtrain
