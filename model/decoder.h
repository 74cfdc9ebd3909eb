#pragma once
// Tokens one after the other over a cache, on a GPU by a recorded pass (core/recorder.h), with the
// bits of one that is not.

#include <span>

#include "core/recorder.h"
#include "model/tiny_transformer.h"

namespace xtrain {

class Decoder {
 public:
  // Model and cache must outlive it; the model's weights stay where they are.
  Decoder(const Context& ctx, TinyTransformer& model, KvCache& cache, const Exec& exec);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // The logits [B, V] behind one more token of each row of the cache that has not ended; for a row
  // that has, any id. They hold until the next call. Errors as TinyTransformer::decode.
  const Tensor& decode(std::span<const int32_t> tokens);

 private:
  void pass(const Context& ctx);

  const Context ctx_;
  TinyTransformer& model_;
  KvCache& cache_;
  const Exec exec_;
  Tensor tokens_, logits_;
  Recorder recorder_;
};

}  // namespace xtrain
