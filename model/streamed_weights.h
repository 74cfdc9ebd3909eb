#pragma once
// Weights that stay in the model's files and are read when a forward pass comes to them, for models
// larger than memory. Two layers are held at a time: the one at work, and the next, which a thread
// reads meanwhile. Of embeddings the rows are read that the tokens ask for; the head is read some
// rows at a time and multiplied. The results have the bits of a model that holds its weights.

#include <future>
#include <vector>

#include "model/table_reader.h"

namespace xtrain {

class ModelFolder;

class StreamedWeights final : public TableReader {
 public:
  // Takes over the values of the parameters of a model that holds none (ModelUse::streamed). Folder
  // and parameters must outlive this. InputError as ModelFolder::load.
  StreamedWeights(const Context& ctx, const ModelFolder& folder, ParameterSet& parameters,
                  Dtype dtype);
  ~StreamedWeights() override;
  StreamedWeights(const StreamedWeights&) = delete;
  StreamedWeights& operator=(const StreamedWeights&) = delete;

  Tensor rows(const Context& ctx, const Parameter& table, const Tensor& ids) override;
  Tensor product(const Context& ctx, const Tensor& x, const Parameter& table) override;

 private:
  struct Layer {
    std::vector<Parameter*> parameters;
    std::vector<int64_t> offsets;  // in a slot, in elements
    int64_t elements = 0;          // of all, in a slot
  };
  void add_to_last_layer(Parameter& parameter);
  void need(size_t layer);
  void start_reading(size_t layer);
  void read(const Context& ctx, size_t layer, size_t slot) const;
  Tensor value_in(size_t slot, const Layer& layer, size_t i) const;

  Context ctx_;
  const ModelFolder& folder_;
  const Dtype dtype_;
  std::vector<Layer> layers_;
  Tensor slots_[2];  // [elements of the largest layer]
  size_t current_ = SIZE_MAX, current_slot_ = 1;
  size_t next_ = SIZE_MAX;     // the layer that the other slot holds or will hold
  std::future<void> reading_;  // until it does
};

}  // namespace xtrain
