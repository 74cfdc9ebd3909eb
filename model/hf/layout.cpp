#include "model/hf/layout.h"

#include <string_view>
#include <utility>

#include "core/error.h"

namespace xtrain {
namespace {

constexpr std::string_view kOwnPrefix = "model.";
constexpr const char* kHead = "lm_head.weight";

struct NamedShape {
  std::string name;
  Shape shape;
};

void add_projection(std::vector<NamedShape>& all, const std::string& name, int64_t out, int64_t in,
                    bool bias) {
  all.push_back({name + ".weight", {out, in}});
  if (bias) all.push_back({name + ".bias", {out}});
}

void add_norm(std::vector<NamedShape>& all, const std::string& name, const ModelConfig& c) {
  all.push_back({name + ".weight", {c.hidden_size}});
  if (c.norm == NormKind::layer) all.push_back({name + ".bias", {c.hidden_size}});
}

int64_t query_width(const ModelConfig& c) {
  return c.num_attention_heads * c.head_dim;
}
int64_t key_width(const ModelConfig& c) {
  return c.num_key_value_heads * c.head_dim;
}

void add_layer(std::vector<NamedShape>& all, const std::string& name, const ModelConfig& c) {
  const int64_t C = c.hidden_size, F = c.intermediate_size;
  const bool gated = c.activation == MlpKind::swiglu;
  add_norm(all, name + ".input_layernorm", c);
  add_projection(all, name + ".self_attn.qkv_proj", query_width(c) + 2 * key_width(c), C,
                 c.attention_bias);
  if (c.qk_norm) {
    all.push_back({name + ".self_attn.q_norm.weight", {c.head_dim}});
    all.push_back({name + ".self_attn.k_norm.weight", {c.head_dim}});
  }
  add_projection(all, name + ".self_attn.o_proj", C, query_width(c), c.attention_output_bias);
  add_norm(all, name + ".post_attention_layernorm", c);
  add_projection(all, name + (gated ? ".mlp.gate_up_proj" : ".mlp.up_proj"), gated ? 2 * F : F, C,
                 c.mlp_bias);
  add_projection(all, name + ".mlp.down_proj", C, F, c.mlp_bias);
}

// The parameters of TinyTransformer, in its order.
std::vector<NamedShape> parameters_of(const ModelConfig& c) {
  std::vector<NamedShape> all;
  all.push_back({"model.embed_tokens.weight", {c.vocab_size, c.hidden_size}});
  if (c.positions == Positions::learned) {
    all.push_back({"model.embed_positions.weight", {c.max_position_embeddings, c.hidden_size}});
  }
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) add_layer(all, text("model.layers.", i), c);
  add_norm(all, "model.norm", c);
  if (!c.tie_word_embeddings) all.push_back({kHead, {c.vocab_size, c.hidden_size}});
  return all;
}

// What a part of the model is called in files, and whether its matrix is stored turned.
struct Renamed {
  std::string_view own, theirs;
  bool transposed = false;
};

constexpr Renamed kGpt2Names[] = {
    {"embed_tokens", "wte"},
    {"embed_positions", "wpe"},
    {"norm", "ln_f"},
    {"input_layernorm", "ln_1"},
    {"self_attn.qkv_proj", "attn.c_attn", true},
    {"self_attn.o_proj", "attn.c_proj", true},
    {"post_attention_layernorm", "ln_2"},
    {"mlp.up_proj", "mlp.c_fc", true},
    {"mlp.down_proj", "mlp.c_proj", true},
};

// The name of a parameter in its parts: "model.layers.3.", "mlp.up_proj", ".weight".
struct NameParts {
  std::string layer;  // "layers.3." or ""
  std::string part, suffix;
};

NameParts parts_of(std::string_view name) {
  NameParts parts;
  name.remove_prefix(kOwnPrefix.size());
  if (name.starts_with("layers.")) {
    const size_t end = name.find('.', std::string_view("layers.").size()) + 1;
    parts.layer = name.substr(0, end);
    name.remove_prefix(end);
  }
  const size_t dot = name.rfind('.');
  parts.part = name.substr(0, dot);
  parts.suffix = name.substr(dot);
  return parts;
}

// Pieces of the rows of a parameter.
struct Rows {
  std::string_view part;
  int64_t count;
};

std::vector<TensorPiece> pieces_of(const NameParts& parts, const std::string& prefix,
                                   const Shape& shape, const std::vector<Rows>& rows) {
  std::vector<TensorPiece> pieces;
  for (const Rows& each : rows) {
    Shape piece = shape;
    piece[0] = each.count;
    pieces.push_back(
        {text(prefix, parts.layer, each.part, parts.suffix), piece, each.count, false});
  }
  return pieces;
}

std::vector<TensorPiece> llama_pieces(const NamedShape& parameter, const std::string& prefix,
                                      const ModelConfig& c) {
  const NameParts parts = parts_of(parameter.name);
  std::vector<Rows> rows{{parts.part, parameter.shape[0]}};
  if (parts.part == "self_attn.qkv_proj") {
    rows = {{"self_attn.q_proj", query_width(c)},
            {"self_attn.k_proj", key_width(c)},
            {"self_attn.v_proj", key_width(c)}};
  } else if (parts.part == "mlp.gate_up_proj") {
    rows = {{"mlp.gate_proj", c.intermediate_size}, {"mlp.up_proj", c.intermediate_size}};
  }
  return pieces_of(parts, prefix, parameter.shape, rows);
}

std::vector<TensorPiece> gpt2_pieces(const NamedShape& parameter, const std::string& prefix) {
  NameParts parts = parts_of(parameter.name);
  if (!parts.layer.empty()) parts.layer = "h" + parts.layer.substr(parts.layer.find('.'));
  for (const Renamed& name : kGpt2Names) {
    if (name.own != parts.part) continue;
    const int64_t rows = parameter.shape[0];
    TensorPiece piece = pieces_of(parts, prefix, parameter.shape, {{name.theirs, rows}})[0];
    piece.transposed = name.transposed && parameter.shape.rank() == 2;
    if (piece.transposed) piece.shape = {parameter.shape[1], rows};
    return {piece};
  }
  fail("layout: GPT-2 has no name for ", parameter.name);
}

// Buffers of each layer that some versions wrote beside the weights.
std::vector<std::string> ignored_of(const ModelConfig& c, const std::string& prefix) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    if (c.model_type == ModelType::gpt2) {
      names.push_back(text(prefix, "h.", i, ".attn.bias"));
      names.push_back(text(prefix, "h.", i, ".attn.masked_bias"));
    } else {
      names.push_back(text(prefix, "layers.", i, ".self_attn.rotary_emb.inv_freq"));
    }
  }
  return names;
}

}  // namespace

ModelLayout own_layout(const ModelConfig& config) {
  ModelLayout layout;
  for (const auto& [name, shape] : parameters_of(config)) {
    layout.parameters.push_back({name, shape, {{name, shape, shape[0], false}}});
  }
  return layout;
}

ModelLayout hugging_face_layout(const ModelConfig& config, bool with_prefix) {
  const bool gpt2 = config.model_type == ModelType::gpt2;
  const std::string prefix = with_prefix ? hugging_face_prefix(config.model_type) : "";
  ModelLayout layout;
  for (const NamedShape& parameter : parameters_of(config)) {
    std::vector<TensorPiece> pieces;
    if (parameter.name == kHead) {
      pieces.push_back({kHead, parameter.shape, parameter.shape[0], false});
    } else {
      pieces = gpt2 ? gpt2_pieces(parameter, prefix) : llama_pieces(parameter, prefix, config);
    }
    layout.parameters.push_back({parameter.name, parameter.shape, std::move(pieces)});
  }
  layout.ignored = ignored_of(config, prefix);
  if (config.tie_word_embeddings) {
    layout.tied_head = kHead;
    layout.tied_to = layout.parameters.front().pieces.front().tensor;
  }
  return layout;
}

std::string hugging_face_prefix(ModelType type) {
  return type == ModelType::gpt2 ? "transformer." : "model.";
}

}  // namespace xtrain
