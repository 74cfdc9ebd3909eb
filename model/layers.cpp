#include "model/layers.h"

#include <cmath>

#include "autodiff/recompute.h"
#include "ops/activation_linear/activation_linear.h"
#include "ops/cached_attention/cached_attention.h"
#include "ops/linear/linear.h"
#include "ops/qk_norm_rope/qk_norm_rope.h"
#include "ops/swiglu/swiglu.h"
#include "ops/view/view.h"

namespace xtrain {
namespace {

Var optional_use(const Pass& pass, Parameter* parameter) {
  return parameter ? use(pass.tape, *parameter) : Var();
}

// Runs body(pass, x), to be run again in backward instead of keeping what it computes.
template <class Body>
Var recomputed(const Pass& pass, const Var& x, std::span<Parameter* const> parameters,
               const Body& body) {
  const Block block = [body, pass](Tape* tape, std::span<const Var> in) {
    return std::vector<Var>{body(pass.on(tape), in[0])};
  };
  return recompute(pass.tape, block, std::span(&x, 1), parameters)[0];
}

}  // namespace

// --- projection ----------------------------------------------------------------------------------

Projection::Projection(ParameterSet& set, const std::string& name, int64_t out, int64_t in,
                       bool has_bias, double std) {
  weight = &set.add(name + ".weight", {out, in}, ParameterKind::matrix, 0.0, std);
  if (has_bias) bias = &set.add(name + ".bias", {out}, ParameterKind::vector, 0.0, 0.0);
}

Var Projection::operator()(const Pass& pass, const Var& x) const {
  return linear(pass.ctx, x, use(pass.tape, *weight), optional_use(pass, bias));
}

void Projection::list(std::vector<Parameter*>& parameters) const {
  parameters.push_back(weight);
  if (bias) parameters.push_back(bias);
}

// --- norm ----------------------------------------------------------------------------------------

Norm::Norm(ParameterSet& set, const std::string& name, const ModelConfig& config)
    : kind(config.norm), eps(config.rms_norm_eps) {
  const Shape shape{config.hidden_size};
  weight = &set.add(name + ".weight", shape, ParameterKind::vector, 1.0, 0.0);
  if (kind == NormKind::layer) {
    bias = &set.add(name + ".bias", shape, ParameterKind::vector, 0.0, 0.0);
  }
}

AddNorm Norm::operator()(const Pass& pass, const Residual& in) const {
  const Var scale = use(pass.tape, *weight), shift = optional_use(pass, bias);
  if (!in.branch.defined()) return {in.x, norm(pass.ctx, in.x, scale, shift, kind, eps)};
  const auto add = pass.exec.fused ? add_norm : add_norm_composed;
  return add(pass.ctx, in.x, in.branch, scale, shift, kind, eps);
}

NormLinear Norm::project(const Pass& pass, const Residual& in, const Projection& projection,
                         bool gelu_follows) const {
  const NormLinearParameters parameters{use(pass.tape, *weight), optional_use(pass, bias),
                                        use(pass.tape, *projection.weight),
                                        optional_use(pass, projection.bias), gelu_follows};
  const auto project = pass.exec.fused ? norm_linear : norm_linear_composed;
  return project(pass.ctx, in.x, in.branch, parameters, kind, eps);
}

void Norm::list(std::vector<Parameter*>& parameters) const {
  parameters.push_back(weight);
  if (bias) parameters.push_back(bias);
}

// --- attention -----------------------------------------------------------------------------------

SelfAttention::SelfAttention(ParameterSet& set, const std::string& name, const ModelConfig& config,
                             double out_std, uint64_t dropout_site)
    : heads(config.num_attention_heads),
      kv_heads(config.num_key_value_heads),
      head_dim(config.head_dim),
      qk_norm_eps(config.rms_norm_eps),
      pairing(config.rope_pairing),
      probability_dropout{config.attn_pdrop, dropout_site},
      qkv(set, name + ".qkv_proj", (heads + 2 * kv_heads) * head_dim, config.hidden_size,
          config.attention_bias, config.initializer_range) {
  if (config.qk_norm) {
    q_norm = &set.add(name + ".q_norm.weight", {head_dim}, ParameterKind::vector, 1.0, 0.0);
    k_norm = &set.add(name + ".k_norm.weight", {head_dim}, ParameterKind::vector, 1.0, 0.0);
  }
  out = Projection(set, name + ".o_proj", config.hidden_size, heads * head_dim,
                   config.attention_output_bias, out_std);
}

// One further token of each row.
Var SelfAttention::attend_with_cache(const Pass& pass, const Tensor& packed) const {
  const LayerCache& cache = *pass.cache;
  return cached_attention(pass.ctx, packed, optional_use(pass, q_norm).value,
                          optional_use(pass, k_norm).value,
                          QkNormRope{heads, kv_heads, head_dim, qk_norm_eps, pairing}, pass.rope,
                          {cache.keys, cache.values, cache.start, cache.added, cache.end});
}

Var SelfAttention::operator()(const Pass& pass, const Var& packed) const {
  if (pass.cache && packed.size(1) == 1 && pass.exec.fused &&
      pass.exec.attention == AttentionKind::flash) {
    return out(pass, attend_with_cache(pass, packed.value));
  }
  const int64_t q_width = heads * head_dim, kv_width = kv_heads * head_dim;
  const std::vector<Var> parts = split(pass.ctx, packed, -1, {q_width + kv_width, kv_width});
  Var qk = parts[0];
  if (q_norm || pass.rope) {
    const QkNormRope options{heads, kv_heads, head_dim, qk_norm_eps, pairing};
    const auto transform = pass.exec.fused ? qk_norm_rope : qk_norm_rope_composed;
    qk = transform(pass.ctx, qk, optional_use(pass, q_norm), optional_use(pass, k_norm), options,
                   pass.rope, pass.positions);
  }
  // Without a norm only the values would keep the whole projection.
  const Var values = pass.tape && !q_norm && pass.rope ? compact(pass.ctx, parts[1]) : parts[1];
  AttentionOptions options;
  options.dropout = probability_dropout;
  options.mask = pass.mask;
  const Var q = slice(pass.ctx, qk, -1, 0, q_width), k = slice(pass.ctx, qk, -1, q_width, kv_width);
  Var keys = split_heads(pass.ctx, k, kv_heads), seen = split_heads(pass.ctx, values, kv_heads);
  if (pass.cache) {
    pass.cache->append(pass.ctx, keys.value, seen.value);
    keys = pass.cache->keys;
    seen = pass.cache->values;
  }
  const Var mixed = xtrain::attention(pass.ctx, split_heads(pass.ctx, q, heads), keys, seen,
                                      options, pass.exec.attention);
  return out(pass, merge_heads(pass.ctx, mixed));
}

std::vector<Parameter*> SelfAttention::parameters() const {
  std::vector<Parameter*> parameters;
  qkv.list(parameters);
  if (q_norm) parameters.insert(parameters.end(), {q_norm, k_norm});
  out.list(parameters);
  return parameters;
}

// --- mlp -----------------------------------------------------------------------------------------

Mlp::Mlp(ParameterSet& set, const std::string& name, const ModelConfig& config, double out_std)
    : kind(config.activation),
      in(set, name + (kind == MlpKind::swiglu ? ".gate_up_proj" : ".up_proj"),
         config.intermediate_size * (kind == MlpKind::swiglu ? 2 : 1), config.hidden_size,
         config.mlp_bias, config.initializer_range),
      out(set, name + ".down_proj", config.hidden_size, config.intermediate_size, config.mlp_bias,
          out_std) {}

Var Mlp::operator()(const Pass& pass, const Var& hidden, const Tensor& gelu) const {
  if (pass.exec.fused) return fused(pass, hidden, gelu);
  const Var active = activate(pass, hidden), y = out(pass, active);
  if (pass.tape && pass.exec.recompute == RecomputeLevel::activations) {
    pass.tape->forget(active.value, hidden.value, [this, pass](const Tensor& h) {
      return activate(pass.on(nullptr), h).value;
    });
  }
  return y;
}

Var Mlp::fused(const Pass& pass, const Var& hidden, const Tensor& gelu) const {
  const Var weight = use(pass.tape, *out.weight), bias = optional_use(pass, out.bias);
  switch (kind) {
    case MlpKind::swiglu:
      return swiglu_linear(pass.ctx, hidden, weight, bias);
    case MlpKind::gelu:
      return gelu.defined()
                 ? activated_linear(pass.ctx, hidden, gelu, Activation::gelu_tanh, weight, bias)
                 : activation_linear(pass.ctx, hidden, Activation::gelu_tanh, weight, bias);
    case MlpKind::gelu_erf:
      return activation_linear(pass.ctx, hidden, Activation::gelu, weight, bias);
  }
  return hidden;
}

Var Mlp::activate(const Pass& pass, const Var& hidden) const {
  switch (kind) {
    case MlpKind::swiglu:
      return swiglu_composed(pass.ctx, hidden);
    case MlpKind::gelu:
      return gelu_tanh(pass.ctx, hidden);
    case MlpKind::gelu_erf:
      return gelu(pass.ctx, hidden);
  }
  return hidden;
}

std::vector<Parameter*> Mlp::parameters() const {
  std::vector<Parameter*> parameters;
  in.list(parameters);
  out.list(parameters);
  return parameters;
}

// --- layer ---------------------------------------------------------------------------------------

namespace {

// Two branches a layer are added to the residual stream; their variances must not add up with
// depth (Radford et al., "Language models are unsupervised multitask learners", section 2.3).
double branch_std(const ModelConfig& config) {
  return config.initializer_range / std::sqrt(2.0 * static_cast<double>(config.num_hidden_layers));
}

}  // namespace

DecoderLayer::DecoderLayer(ParameterSet& set, const std::string& name, const ModelConfig& config,
                           uint64_t first_site)
    : attention_norm(set, name + ".input_layernorm", config),
      attention(set, name + ".self_attn", config, branch_std(config), first_site),
      mlp_norm(set, name + ".post_attention_layernorm", config),
      mlp(set, name + ".mlp", config, branch_std(config)),
      attention_dropout{config.resid_pdrop, first_site + 1},
      mlp_dropout{config.resid_pdrop, first_site + 2} {}

Residual DecoderLayer::operator()(const Pass& pass, const Residual& in) const {
  if (pass.exec.recompute != RecomputeLevel::block) return forward(pass, in);
  std::vector<Var> inputs{in.x};
  if (in.branch.defined()) inputs.push_back(in.branch);
  const Block block = [this, pass](Tape* tape, std::span<const Var> x) {
    const Residual result = forward(pass.on(tape), {x[0], x.size() > 1 ? x[1] : Var()});
    return std::vector<Var>{result.x, result.branch};
  };
  const std::vector<Var> outputs = recompute(pass.tape, block, inputs, parameters());
  return {outputs[0], outputs[1]};
}

Residual DecoderLayer::forward(const Pass& pass, const Residual& in) const {
  const Residual attended = attend(pass, in);
  const NormLinear hidden = mlp_norm.project(pass, attended, mlp.in, mlp.kind == MlpKind::gelu);
  return {hidden.sum, dropout(pass.ctx, mlp(pass, hidden.y, hidden.gelu), mlp_dropout)};
}

Residual DecoderLayer::attend(const Pass& pass, const Residual& in) const {
  Var sum, branch;
  if (pass.exec.recompute == RecomputeLevel::attention) {
    const AddNorm normed = attention_norm(pass, in);
    sum = normed.sum;
    branch = recomputed(
        pass, normed.normed, attention.parameters(),
        [this](const Pass& p, const Var& x) { return attention(p, attention.qkv(p, x)); });
  } else {
    const NormLinear projected = attention_norm.project(pass, in, attention.qkv);
    sum = projected.sum;
    branch = attention(pass, projected.y);
  }
  return {sum, dropout(pass.ctx, branch, attention_dropout)};
}

std::vector<Parameter*> DecoderLayer::parameters() const {
  std::vector<Parameter*> all;
  attention_norm.list(all);
  for (Parameter* p : attention.parameters()) all.push_back(p);
  mlp_norm.list(all);
  for (Parameter* p : mlp.parameters()) all.push_back(p);
  return all;
}

}  // namespace xtrain
