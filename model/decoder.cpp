#include "model/decoder.h"

#include "core/copy.h"

namespace xtrain {

namespace {

Context with_resting_weights(Context ctx) {
  ctx.weights_rest = true;
  return ctx;
}

}  // namespace

Decoder::Decoder(const Context& ctx, TinyTransformer& model, KvCache& cache, const Exec& exec)
    : ctx_(ctx),
      model_(model),
      cache_(cache),
      exec_(exec),
      tokens_(empty(ctx, {cache.rows()}, Dtype::i32)),
      logits_(empty(ctx, {cache.rows(), model.config().vocab_size}, exec.dtype)),
      recorder_(with_resting_weights(ctx)) {}

const Tensor& Decoder::decode(std::span<const int32_t> tokens) {
  cache_.plan_one(ctx_);
  copy(ctx_, from_host(ctx_, tokens, {cache_.rows()}), tokens_);
  if (model_.is_streamed()) {  // weights come from the host
    pass(ctx_);
  } else {
    recorder_.run(0, [this] { pass(recorder_.context()); });
  }
  return logits_;
}

void Decoder::pass(const Context& ctx) {
  copy(ctx, model_.decode_planned(ctx, cache_, tokens_, exec_), logits_);
}

}  // namespace xtrain
