#pragma once
// Tokens one after the other over a cache. On a GPU a token is some hundred small kernels, which
// the host could not start as fast as they end: the second pass is recorded, and from then on a
// token is one launch. Where the context's queue records nothing, each token is a pass as usual,
// with the same bits.

#include <memory>
#include <span>

#include "core/allocator.h"
#include "core/queue.h"
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
  void pass();

  const Context ctx_;
  TinyTransformer& model_;
  KvCache& cache_;
  const Exec exec_;
  Tensor tokens_, logits_;
  std::shared_ptr<KeptAllocator> memory_;  // of a pass
  Context of_pass_;
  bool has_run_ = false;
  std::unique_ptr<RecordedWork> recorded_;
};

}  // namespace xtrain
