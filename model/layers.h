#pragma once
// The parts of a decoder layer. Each holds pointers to its parameters, which belong to the model's
// ParameterSet, and computes on a tape or, with a null tape, values only.

#include <string>
#include <vector>

#include "autodiff/tape.h"
#include "model/config.h"
#include "model/exec.h"
#include "model/kv_cache.h"
#include "ops/attention/attention.h"
#include "ops/norm_linear/norm_linear.h"
#include "ops/rope/rope.h"

namespace xtrain {

// What every layer of one forward pass shares.
struct Pass {
  const Context& ctx;
  Tape* tape;  // null: values only
  Exec exec;
  const RopeTable* rope;  // null: no rotation
  Tensor positions;       // [B, T] i32
  AttentionMask mask;
  // Of the layer at work: attention writes its keys and values there and reads all that it holds.
  // Null: attention is among the tokens of the pass. With a cache the tape is null.
  const LayerCache* cache = nullptr;

  Pass on(Tape* other) const { return Pass{ctx, other, exec, rope, positions, mask, cache}; }
};

// y = x weight^T + bias.
struct Projection {
  Parameter* weight = nullptr;  // [out, in]
  Parameter* bias = nullptr;    // [out] or null

  Projection() = default;
  Projection(ParameterSet& set, const std::string& name, int64_t out, int64_t in, bool has_bias,
             double std);
  Var operator()(const Pass& pass, const Var& x) const;
  void list(std::vector<Parameter*>& parameters) const;
};

// The residual stream and the branch not yet added to it: the sum is fused with the next norm,
// across the border between layers.
struct Residual {
  Var x;       // [B, T, C]
  Var branch;  // [B, T, C], undefined before the first layer
};

struct Norm {
  NormKind kind = NormKind::rms;
  double eps = 0.0;
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;  // LayerNorm's

  Norm() = default;
  Norm(ParameterSet& set, const std::string& name, const ModelConfig& config);
  // The residual stream with its branch added, and the norm of that.
  AddNorm operator()(const Pass& pass, const Residual& in) const;
  // The same, and the projection of the norm, which gelu_tanh may follow.
  NormLinear project(const Pass& pass, const Residual& in, const Projection& projection,
                     bool gelu_follows = false) const;
  void list(std::vector<Parameter*>& parameters) const;
};

// Self-attention with grouped queries on one packed projection.
struct SelfAttention {
  int64_t heads, kv_heads, head_dim;
  double qk_norm_eps;
  RopePairing pairing;
  Dropout probability_dropout;
  Projection qkv, out;
  Parameter* q_norm = nullptr;  // [D], with k_norm, or both null
  Parameter* k_norm = nullptr;

  SelfAttention(ParameterSet& set, const std::string& name, const ModelConfig& config,
                double out_std, uint64_t dropout_site);
  // packed [B, T, (H + 2 KV) D], which qkv has made -> [B, T, C].
  Var operator()(const Pass& pass, const Var& packed) const;
  std::vector<Parameter*> parameters() const;

 private:
  Var attend_with_cache(const Pass& pass, const Tensor& packed) const;
};

// The feed-forward branch: swiglu of a packed gate and up projection, or gelu of one projection.
struct Mlp {
  MlpKind kind;
  Projection in, out;

  Mlp(ParameterSet& set, const std::string& name, const ModelConfig& config, double out_std);
  // hidden, which `in` has made, and gelu_tanh of it where it is known -> [B, T, C].
  Var operator()(const Pass& pass, const Var& hidden, const Tensor& gelu) const;
  std::vector<Parameter*> parameters() const;

 private:
  Var fused(const Pass& pass, const Var& hidden, const Tensor& gelu) const;
  Var activate(const Pass& pass, const Var& hidden) const;
};

struct DecoderLayer {
  Norm attention_norm;
  SelfAttention attention;
  Norm mlp_norm;
  Mlp mlp;
  Dropout attention_dropout, mlp_dropout;  // of the branches

  // Dropout draws from sites first_site .. first_site + kSites - 1.
  static constexpr uint64_t kSites = 3;
  DecoderLayer(ParameterSet& set, const std::string& name, const ModelConfig& config,
               uint64_t first_site);
  Residual operator()(const Pass& pass, const Residual& in) const;

 private:
  Residual forward(const Pass& pass, const Residual& in) const;
  Residual attend(const Pass& pass, const Residual& in) const;
  std::vector<Parameter*> parameters() const;
};

}  // namespace xtrain
