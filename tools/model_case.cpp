#include "tools/model_case.h"

#include <cstring>

#include "core/config_reader.h"
#include "core/copy.h"
#include "core/error.h"
#include "model/tiny_transformer.h"

namespace xtrain {
namespace {

ModelConfig config_of(const SafetensorsFile& file) {
  const auto found = file.metadata().find("config");
  check_input(found != file.metadata().end(), file.path(),
              ": the metadata must hold the model's config; there is no \"config\" in it");
  ConfigReader reader;
  reader.add_json(found->second, file.path() + ", metadata \"config\"");
  return read_model_config(reader);
}

// The bytes may have any alignment, so they are copied, not read in place.
template <class T>
std::vector<T> elements_of(const SafetensorsEntry& entry) {
  std::vector<T> values(entry.bytes.size() / sizeof(T));
  std::memcpy(values.data(), entry.bytes.data(), entry.bytes.size());
  return values;
}

template <class T>
std::vector<double> as_doubles(const SafetensorsEntry& entry) {
  const std::vector<T> values = elements_of<T>(entry);
  return {values.begin(), values.end()};
}

void load_parameters(const Context& ctx, const ModelCase& model_case, ParameterSet& parameters) {
  for (Parameter& p : parameters.list()) {
    const SafetensorsEntry& entry = model_case.file().at(p.name);
    const std::vector<int64_t> shape(p.shape.begin(), p.shape.end());
    check_input(entry.shape == shape, model_case.file().path(), ": ", p.name,
                " must have the shape ", p.shape, " that the config gives");
    copy(ctx, from_host(ctx, values_of(entry), p.shape), p.value);
  }
}

// The tensor as token ids.
std::vector<int32_t> ids_of(const SafetensorsFile& file, const SafetensorsEntry& entry) {
  check_input(entry.shape.size() == 2 && entry.dtype == "I32", file.path(), ": ", entry.name,
              " must be [B, T] of I32");
  return elements_of<int32_t>(entry);
}

TokenBatch batch_of(const Context& ctx, const ModelCase& model_case) {
  const SafetensorsEntry& inputs = model_case.file().at("inputs");
  const SafetensorsEntry& targets = model_case.file().at("targets");
  check_input(inputs.shape == targets.shape, model_case.file().path(),
              ": inputs and targets must have one shape");
  return token_batch(ctx, ids_of(model_case.file(), inputs), ids_of(model_case.file(), targets),
                     inputs.shape[0]);
}

NamedValues named(const Context& ctx, std::string name, const Tensor& x) {
  return {std::move(name),
          {x.shape().begin(), x.shape().end()},
          to_host<double>(ctx, cast(ctx, x, Dtype::f64))};
}

}  // namespace

ModelCase::ModelCase(const std::string& path) : file_(path), config_(config_of(file_)) {}

std::vector<double> values_of(const SafetensorsEntry& entry) {
  if (entry.dtype == "F64") return as_doubles<double>(entry);
  if (entry.dtype == "F32") return as_doubles<float>(entry);
  if (entry.dtype == "I32") return as_doubles<int32_t>(entry);
  reject_input(entry.name, ": dtype must be F64, F32 or I32; got ", entry.dtype);
}

std::vector<NamedValues> compute(const Context& ctx, const ModelCase& model_case,
                                 const Exec& exec) {
  TinyTransformer model(ctx, model_case.config(), exec.dtype);
  ParameterSet& parameters = model.parameters();
  load_parameters(ctx, model_case, parameters);
  const TokenBatch batch = batch_of(ctx, model_case);

  std::vector<NamedValues> results;
  results.push_back(named(ctx, "logits", model.logits(ctx, nullptr, batch, exec).value));
  Tape tape(ctx);
  const Loss loss = model.loss(ctx, &tape, batch, exec);
  results.push_back(named(ctx, "loss", loss.sum.value));
  tape.backward(loss.sum);
  parameters.zero_missing_grads(ctx);
  for (const Parameter& p : parameters.list()) {
    results.push_back(named(ctx, "grad." + p.name, p.grad));
  }
  return results;
}

NamedValues compute_logits(const Context& ctx, const ModelFolder& folder,
                           const SafetensorsFile& inputs, const Exec& exec) {
  TinyTransformer model(ctx, folder.config(), exec.dtype);
  folder.load(ctx, model.parameters());
  const SafetensorsEntry& ids = inputs.at("inputs");
  const TokenBatch batch = token_batch(ctx, ids_of(inputs, ids), {}, ids.shape[0]);
  return named(ctx, "logits", model.logits(ctx, nullptr, batch, exec).value);
}

}  // namespace xtrain
