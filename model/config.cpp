#include "model/config.h"

#include <limits>

#include "core/config_reader.h"
#include "core/error.h"

namespace xtrain {
namespace {

// Far above any model of today, yet products of them stay below 2^63: a projection of all layers
// has at most 2^14 layers * 2^18 heads' elements * 2^17 = 2^49 weights, 3 * 2^51 in an MLP.
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxLayers = 10'000;
constexpr int64_t kMaxHidden = int64_t{1} << 17;
constexpr int64_t kMaxHeads = 1024;
constexpr int64_t kMaxHeadDim = 256;
constexpr int64_t kMaxIntermediate = int64_t{1} << 20;
constexpr int64_t kMaxPositions = int64_t{1} << 24;

constexpr IntRange kAnyInteger{std::numeric_limits<int64_t>::min(),
                               std::numeric_limits<int64_t>::max()};

const EnumNames<ModelType>& model_type_names() {
  static const EnumNames<ModelType> names{{ModelType::gpt2, "gpt2"},
                                          {ModelType::llama, "llama"},
                                          {ModelType::qwen2, "qwen2"},
                                          {ModelType::qwen3, "qwen3"}};
  return names;
}

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

ModelConfig with_defaults(const ModelConfig& given) {
  const bool is_gpt2 = given.model_type == ModelType::gpt2;
  const int64_t heads = given.num_attention_heads;
  ModelConfig config = given;
  config.num_key_value_heads = heads;
  config.head_dim = heads > 0 && given.hidden_size % heads == 0 ? given.hidden_size / heads : 0;
  config.intermediate_size =
      is_gpt2 ? 4 * given.hidden_size : round_up(8 * given.hidden_size / 3, 64);
  config.norm = is_gpt2 ? NormKind::layer : NormKind::rms;
  config.rms_norm_eps = is_gpt2 ? 1e-5 : 1e-6;
  config.activation = is_gpt2 ? MlpKind::gelu : MlpKind::swiglu;
  config.positions = is_gpt2 ? Positions::learned : Positions::rope;
  config.qk_norm = given.model_type == ModelType::qwen3;
  config.attention_bias = is_gpt2 || given.model_type == ModelType::qwen2 || given.attention_bias;
  // Hugging Face's attention_bias of Llama and Qwen3 means all four projections; Qwen2 never has
  // one on the output.
  config.attention_output_bias =
      is_gpt2 || (given.model_type != ModelType::qwen2 && given.attention_bias);
  config.mlp_bias = is_gpt2;
  config.tie_word_embeddings = is_gpt2;
  return config;
}

std::vector<ConfigField> config_fields(ModelConfig& c) {
  const RealRange probability = at_least(0).below(1);
  return {
      config_field("model_type", c.model_type, model_type_names(),
                   "the kind, which sets the switches below that are not given")
          .require(),
      config_field("vocab_size", c.vocab_size, from_to(0, kMaxVocab),
                   "number of token ids; 0: that of the data"),
      config_field("hidden_size", c.hidden_size, from_to(1, kMaxHidden),
                   "width of the residual stream")
          .alias("n_embd")
          .require(),
      config_field("num_hidden_layers", c.num_hidden_layers, from_to(1, kMaxLayers),
                   "number of blocks")
          .alias("n_layer")
          .require(),
      config_field("num_attention_heads", c.num_attention_heads, from_to(1, kMaxHeads),
                   "query heads of a block")
          .alias("n_head")
          .require(),
      config_field("num_key_value_heads", c.num_key_value_heads, kAnyInteger,
                   "key and value heads of a block, each shared by equally many query heads")
          .expect("an integer that divides num_attention_heads")
          .default_is("num_attention_heads"),
      config_field("head_dim", c.head_dim, from_to(1, kMaxHeadDim),
                   "width of a head; even with RoPE")
          .default_is("hidden_size / num_attention_heads"),
      config_field("intermediate_size", c.intermediate_size, from_to(1, kMaxIntermediate),
                   "width inside the MLP")
          .alias("n_inner")
          .default_is("gpt2: 4 hidden_size; others: 8/3 hidden_size, up to a multiple of 64"),
      config_field("max_position_embeddings", c.max_position_embeddings, from_to(1, kMaxPositions),
                   "longest sequence, in tokens")
          .alias("n_positions")
          .alias("block_size")
          .require(),
      config_field("norm", c.norm, {{NormKind::rms, "rmsnorm"}, {NormKind::layer, "layernorm"}},
                   "normalization before each branch and the head")
          .default_is("by model_type"),
      config_field("rms_norm_eps", c.rms_norm_eps, above(0).at_most(1),
                   "added to the variance or mean square in a norm")
          .alias("layer_norm_epsilon")
          .alias("norm_eps")
          .default_is("gpt2: 1e-5; others: 1e-6"),
      config_field(
          "activation", c.activation,
          {{MlpKind::swiglu, "swiglu"}, {MlpKind::gelu, "gelu"}, {MlpKind::gelu_erf, "gelu_erf"}},
          "of the MLP; gelu is the tanh approximation, gelu_erf the definition")
          .default_is("by model_type"),
      config_field("positions", c.positions,
                   {{Positions::rope, "rope"}, {Positions::learned, "learned"}},
                   "how a token's position enters: rotated queries and keys, or a learned table")
          .default_is("by model_type"),
      config_field("rope_theta", c.rope_theta, at_least(1), "base of RoPE's wave lengths"),
      config_field("rope_pairing", c.rope_pairing,
                   {{RopePairing::halves, "halves"}, {RopePairing::adjacent, "adjacent"}},
                   "elements that RoPE turns together: i and i + head_dim/2, or 2i and 2i + 1"),
      config_field("qk_norm", c.qk_norm, "RMSNorm of each query and key head before RoPE")
          .default_is("by model_type"),
      config_field("attention_bias", c.attention_bias,
                   "biases of the query, key and value projections")
          .default_is("by model_type"),
      config_field("attention_output_bias", c.attention_output_bias,
                   "bias of the projection after attention")
          .default_is("gpt2: true; qwen2: false; others: attention_bias"),
      config_field("mlp_bias", c.mlp_bias, "biases of the MLP's projections")
          .default_is("by model_type"),
      config_field("tie_word_embeddings", c.tie_word_embeddings,
                   "the head's weights are the embedding's")
          .default_is("by model_type"),
      config_field("initializer_range", c.initializer_range, above(0).at_most(10),
                   "standard deviation of fresh weights"),
      config_field("embd_pdrop", c.embd_pdrop, probability, "dropout of the embeddings")
          .alias("dropout"),
      config_field("resid_pdrop", c.resid_pdrop, probability, "dropout of each residual branch")
          .alias("dropout"),
      config_field("attn_pdrop", c.attn_pdrop, probability, "dropout of attention probabilities")
          .alias("attention_dropout")
          .alias("dropout"),
  };
}

std::string_view name_of(ModelType type) {
  for (const auto& [each, name] : model_type_names()) {
    if (each == type) return name;
  }
  fail("model_type: unknown kind");
}

// Read twice: first to find the keys on which the defaults of others depend.
ModelConfig read_model_config(const ConfigReader& reader) {
  ModelConfig given;
  reader.read({{"model", config_fields(given)}});
  ModelConfig config = with_defaults(given);
  reader.read({{"model", config_fields(config)}});
  validate(config);
  return config;
}

void validate(const ModelConfig& c) {
  const int64_t heads = c.num_attention_heads, kv_heads = c.num_key_value_heads;
  check_input(c.head_dim != 0 || heads < 1 || c.hidden_size % heads == 0,
              "model.hidden_size must be a multiple of num_attention_heads where head_dim is not "
              "given; got hidden_size ",
              c.hidden_size, " and num_attention_heads ", heads);
  check_input(heads < 1 || (kv_heads >= 1 && heads % kv_heads == 0),
              "model.num_key_value_heads must be at least 1 and divide num_attention_heads; got "
              "num_key_value_heads ",
              kv_heads, " and num_attention_heads ", heads);
  check_input(c.positions != Positions::rope || c.head_dim % 2 == 0,
              "model.head_dim must be even where positions is rope; got head_dim ", c.head_dim,
              " and positions rope");
  check_input(!c.qk_norm || c.head_dim % 2 == 0,
              "model.head_dim must be even where qk_norm is true; got head_dim ", c.head_dim,
              " and qk_norm true");
  ModelConfig copy = c;
  check_ranges({"model", config_fields(copy)});
}

int64_t parameter_count(const ModelConfig& c) {
  const int64_t width = c.hidden_size, inner = c.intermediate_size;
  const int64_t query = c.num_attention_heads * c.head_dim;
  const int64_t key_value = 2 * c.num_key_value_heads * c.head_dim;
  const int64_t norm = c.norm == NormKind::layer ? 2 * width : width;  // with its bias

  int64_t attention = width * (query + key_value) + query * width;
  if (c.attention_bias) attention += query + key_value;
  if (c.attention_output_bias) attention += width;
  if (c.qk_norm) attention += 2 * c.head_dim;

  const int64_t into_mlp = c.activation == MlpKind::swiglu ? 2 * inner : inner;
  int64_t mlp = width * into_mlp + inner * width;
  if (c.mlp_bias) mlp += into_mlp + width;

  int64_t embedding = c.vocab_size * width;
  if (!c.tie_word_embeddings) embedding *= 2;
  if (c.positions == Positions::learned) embedding += c.max_position_embeddings * width;
  return embedding + c.num_hidden_layers * (2 * norm + attention + mlp) + norm;
}

}  // namespace xtrain
