#include "model/decoder.h"

#include "core/copy.h"

namespace xtrain {

Decoder::Decoder(const Context& ctx, TinyTransformer& model, KvCache& cache, const Exec& exec)
    : ctx_(ctx),
      model_(model),
      cache_(cache),
      exec_(exec),
      tokens_(empty(ctx, {cache.rows()}, Dtype::i32)),
      logits_(empty(ctx, {cache.rows(), model.config().vocab_size}, exec.dtype)),
      memory_(std::make_shared<KeptAllocator>(ctx.allocator)),
      of_pass_(ctx) {
  of_pass_.allocator = memory_;
}

const Tensor& Decoder::decode(std::span<const int32_t> tokens) {
  cache_.plan_one(ctx_);
  copy(ctx_, from_host(ctx_, tokens, {cache_.rows()}), tokens_);
  if (model_.is_streamed()) {
    pass();
    return logits_;
  }
  if (has_run_ && !recorded_) {
    if (ctx_.device.is_cuda()) memory_->close();
    recorded_ = ctx_.queue->record_work([this] { pass(); });
  }
  recorded_ ? recorded_->run() : pass();
  has_run_ = true;
  return logits_;
}

void Decoder::pass() {
  copy(of_pass_, model_.decode_planned(of_pass_, cache_, tokens_, exec_), logits_);
}

}  // namespace xtrain
