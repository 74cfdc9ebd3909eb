#pragma once
// The architecture of a model: what a checkpoint would not survive changing. How to compute it is
// said by Exec, how to train it by TrainConfig.
//
// Keys have Hugging Face's names. model_type chooses what the kind implies; every switch can still
// be set by itself:
//
//            norm       activation  positions  qk_norm  biases                tied embeddings
//   gpt2     layernorm  gelu        learned    no       all                   yes
//   llama    rmsnorm    swiglu      rope       no       none                  no
//   qwen2    rmsnorm    swiglu      rope       no       query, key, value     no
//   qwen3    rmsnorm    swiglu      rope       yes      none                  no

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/config_field.h"
#include "ops/norm/norm.h"
#include "ops/rope/rope.h"

namespace xtrain {

class ConfigReader;

enum class ModelType : uint8_t { gpt2, llama, qwen2, qwen3 };
// gelu is the approximation by tanh, gelu_erf the definition; swiglu has a gate projection besides.
enum class MlpKind : uint8_t { swiglu, gelu, gelu_erf };
enum class Positions : uint8_t { rope, learned };

struct ModelConfig {
  ModelType model_type = ModelType::llama;
  int64_t vocab_size = 0;  // 0 until the data's vocabulary is known
  int64_t hidden_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;  // divides num_attention_heads
  int64_t head_dim = 0;             // heads * head_dim may differ from hidden_size
  int64_t intermediate_size = 0;
  int64_t max_position_embeddings = 0;

  NormKind norm = NormKind::rms;
  double rms_norm_eps = 1e-6;  // LayerNorm's too
  MlpKind activation = MlpKind::swiglu;
  Positions positions = Positions::rope;
  double rope_theta = 10000;
  RopePairing rope_pairing = RopePairing::halves;
  bool qk_norm = false;                // RMSNorm of each query and key head
  bool attention_bias = false;         // of the query, key and value projections
  bool attention_output_bias = false;  // of the projection after attention
  bool mlp_bias = false;
  bool tie_word_embeddings = false;  // the head is the embedding

  double initializer_range = 0.02;  // standard deviation of fresh weights
  double embd_pdrop = 0;            // dropout probabilities: of the embeddings,
  double resid_pdrop = 0;           // of each residual branch,
  double attn_pdrop = 0;            // of the attention probabilities

  bool operator==(const ModelConfig&) const = default;
};

// `given` with everything that follows from its model_type, hidden_size, num_attention_heads and
// attention_bias: the switches of the table above, rms_norm_eps, num_key_value_heads (one a head),
// head_dim (hidden_size / heads; 0 where that is no integer), intermediate_size (gpt2: 4 times
// hidden_size; others: 8/3 of it, rounded up to a multiple of 64).
ModelConfig with_defaults(const ModelConfig& given);

std::string_view name_of(ModelType type);  // "llama"

// The keys of the section "model". The fields point into `config`.
std::vector<ConfigField> config_fields(ModelConfig& config);

// What the reader's sources say in the section "model", the only one they may have; defaults filled
// in and checked. Throws InputError naming the key.
ModelConfig read_model_config(const ConfigReader& reader);

// Throws InputError naming the values when sizes do not fit together or are out of range. Sizes
// that pass make no product that overflows 64 bits. Reserves nothing. vocab_size may still be 0.
void validate(const ModelConfig& config);

// Number of weights; those of a tied head count once.
int64_t parameter_count(const ModelConfig& config);

}  // namespace xtrain
