#include "model/streamed_weights.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "core/copy.h"
#include "core/error.h"
#include "core/gemm.h"
#include "core/parallel.h"
#include "model/model_folder.h"
#include "ops/embedding/embedding.h"

namespace xtrain {
namespace {

constexpr int64_t kSliceAlignment = kAllocationAlignment / 2;  // as in a model's arenas
constexpr int64_t kTableBytes = int64_t{8} << 20;              // of a table, read at a time

// "model.layers.7" of a parameter of a layer, "" for others.
std::string layer_prefix(const std::string& name) {
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers)) return "";
  return name.substr(0, name.find('.', kLayers.size()));
}

// read(context) runs in a thread beside what follows. A GPU's copies follow its kernels in one
// queue, which threads do not share; they are made when the result is asked for.
template <class Read>
auto read_beside(const Context& ctx, Read read) {
  const bool on_cpu = ctx.device.is_cpu();
  Context alone = ctx;
  alone.threads = 1;
  return std::async(on_cpu ? std::launch::async : std::launch::deferred, [on_cpu, alone, read] {
    if (on_cpu) run_on_all_cores();
    return read(alone);
  });
}

}  // namespace

StreamedWeights::StreamedWeights(const Context& ctx, const ModelFolder& folder,
                                 ParameterSet& parameters, Dtype dtype)
    : ctx_(ctx), folder_(folder), dtype_(dtype) {
  folder.check_tied_head();
  std::string layer;
  for (Parameter& p : parameters.list()) {
    const std::string prefix = layer_prefix(p.name);
    if (!prefix.empty()) {
      if (prefix != std::exchange(layer, prefix)) layers_.emplace_back();
      add_to_last_layer(p);
    } else if (p.shape.rank() == 1) {  // the last norm: held
      p.value = empty(ctx, p.shape, dtype);
      folder.load(ctx, p);
    }
  }
  int64_t largest = 0;
  for (const Layer& each : layers_) largest = std::max(largest, each.elements);
  for (Tensor& slot : slots_) slot = empty(ctx, {largest}, dtype);
}

StreamedWeights::~StreamedWeights() {
  if (reading_.valid()) reading_.wait();
  for (const Layer& layer : layers_) {
    for (Parameter* p : layer.parameters) p->before_use = nullptr;
  }
}

void StreamedWeights::add_to_last_layer(Parameter& parameter) {
  Layer& layer = layers_.back();
  layer.parameters.push_back(&parameter);
  layer.offsets.push_back(layer.elements);
  const int64_t slices = (numel_of(parameter.shape) + kSliceAlignment - 1) / kSliceAlignment;
  layer.elements += slices * kSliceAlignment;
  parameter.before_use = [this, index = layers_.size() - 1] { need(index); };
}

Tensor StreamedWeights::value_in(size_t slot, const Layer& layer, size_t i) const {
  const Shape& shape = layer.parameters[i]->shape;
  return slots_[slot].slice(0, layer.offsets[i], numel_of(shape)).reshape(shape);
}

void StreamedWeights::read(const Context& ctx, size_t layer, size_t slot) const {
  for (size_t i = 0; i < layers_[layer].parameters.size(); ++i) {
    const Parameter& p = *layers_[layer].parameters[i];
    folder_.load(ctx, p.name, value_in(slot, layers_[layer], i));
  }
}

// Into the slot that is not at work.
void StreamedWeights::start_reading(size_t layer) {
  next_ = layer;
  const size_t slot = 1 - current_slot_;
  reading_ =
      read_beside(ctx_, [this, layer, slot](const Context& alone) { read(alone, layer, slot); });
}

// Layers come in their order, pass after pass.
void StreamedWeights::need(size_t layer) {
  if (layer == current_) return;
  if (reading_.valid() && next_ != layer) reading_.get();  // a pass was broken off
  if (next_ != layer) start_reading(layer);
  next_ = SIZE_MAX;
  if (reading_.valid()) reading_.get();
  for (Layer& others : layers_) {
    for (Parameter* p : others.parameters) p->value = Tensor();
  }
  current_slot_ = 1 - current_slot_;
  current_ = layer;
  for (size_t i = 0; i < layers_[layer].parameters.size(); ++i) {
    layers_[layer].parameters[i]->value = value_in(current_slot_, layers_[layer], i);
  }
  if (layers_.size() > 1) start_reading((layer + 1) % layers_.size());
}

Tensor StreamedWeights::rows(const Context& ctx, const Parameter& table, const Tensor& ids) {
  const std::vector<int32_t> wanted = to_host<int32_t>(ctx, ids);
  std::map<int32_t, int32_t> places;  // of the distinct ids
  for (const int32_t id : wanted) {
    check(id >= 0 && id < table.shape[0], "embedding: ids must lie in 0..", table.shape[0] - 1,
          "; got ", id);
    places.emplace(id, 0);
  }
  const Tensor some = empty(ctx, {static_cast<int64_t>(places.size()), table.shape[1]}, dtype_);
  int32_t next = 0;
  for (auto& [id, place] : places) {
    place = next++;
    folder_.load(ctx, table.name, some.slice(0, place, 1), id);
  }
  std::vector<int32_t> at;
  for (const int32_t id : wanted) at.push_back(places[id]);
  return embedding(ctx, some, from_host(ctx, at, ids.shape())).value;
}

Tensor StreamedWeights::product(const Context& ctx, const Tensor& x, const Parameter& table) {
  const int64_t rows = table.shape[0], columns = table.shape[1];
  const int64_t block = std::clamp<int64_t>(kTableBytes / (columns * size_of(dtype_)), 1, rows);
  const Tensor memory[2] = {empty(ctx, {block, columns}, dtype_),
                            empty(ctx, {block, columns}, dtype_)};
  const Tensor y = empty(ctx, {x.size(0), rows}, x.dtype());
  const auto read_block = [&](int64_t first) {
    const Tensor target = memory[first / block % 2].slice(0, 0, std::min(block, rows - first));
    return read_beside(ctx, [this, target, first, &table](const Context& alone) {
      folder_.load(alone, table.name, target, first);
      return target;
    });
  };
  std::future<Tensor> next = read_block(0);
  for (int64_t first = 0; first < rows; first += block) {
    const Tensor weight = next.get();
    if (first + block < rows) next = read_block(first + block);
    gemm(ctx, x, weight.transpose(0, 1), y.slice(1, first, weight.size(0)));
  }
  return y;
}

}  // namespace xtrain
