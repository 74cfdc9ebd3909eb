#include "model/hf/hugging_face_keys.h"

#include <map>
#include <set>

namespace xtrain {
namespace {

using Names = std::set<std::string>;

// Keys of the section "model" under these names.
const Names kGpt2Keys{"vocab_size",          "n_embd",
                      "hidden_size",         "n_layer",
                      "num_hidden_layers",   "n_head",
                      "num_attention_heads", "n_inner",
                      "n_positions",         "max_position_embeddings",
                      "layer_norm_epsilon",  "initializer_range",
                      "embd_pdrop",          "resid_pdrop",
                      "attn_pdrop",          "tie_word_embeddings"};
const Names kLlamaKeys{
    "vocab_size",          "hidden_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim",    "intermediate_size", "max_position_embeddings",
    "rms_norm_eps",        "rope_theta",  "initializer_range", "attention_dropout",
    "tie_word_embeddings"};

// What may be null instead of left out.
const Names kOptional{"n_inner", "num_key_value_heads", "head_dim"};

// Keys read apart.
const Names kSpecial{"model_type",         "hidden_act",      "activation_function",
                     "rope_scaling",       "rope_parameters", "layer_types",
                     "use_sliding_window", "sliding_window",  "max_window_layers"};

// Keys that say nothing about the arithmetic of a model's logits.
const Names kHarmless{"architectures",
                      "transformers_version",
                      "torch_dtype",
                      "dtype",
                      "use_cache",
                      "bos_token_id",
                      "eos_token_id",
                      "pad_token_id",
                      "sep_token_id",
                      "decoder_start_token_id",
                      "unk_token_id",
                      "_name_or_path",
                      "name_or_path",
                      "_attn_implementation_autoset",
                      "attn_implementation",
                      "_attn_implementation",
                      "task_specific_params",
                      "gradient_checkpointing",
                      "n_ctx",
                      "pretraining_tp",
                      "return_dict",
                      "return_dict_in_generate",
                      "output_attentions",
                      "output_hidden_states",
                      "output_scores",
                      "torchscript",
                      "id2label",
                      "label2id",
                      "num_labels",
                      "problem_type",
                      "finetuning_task",
                      "tokenizer_class",
                      "prefix",
                      "chunk_size_feed_forward",
                      "is_decoder",
                      "cross_attention_hidden_size",
                      "bad_words_ids",
                      "begin_suppress_tokens",
                      "suppress_tokens",
                      "forced_bos_token_id",
                      "forced_eos_token_id",
                      "exponential_decay_length_penalty",
                      "max_length",
                      "min_length",
                      "do_sample",
                      "early_stopping",
                      "num_beams",
                      "num_beam_groups",
                      "num_return_sequences",
                      "diversity_penalty",
                      "encoder_no_repeat_ngram_size",
                      "length_penalty",
                      "no_repeat_ngram_size",
                      "remove_invalid_values",
                      "repetition_penalty",
                      "temperature",
                      "top_k",
                      "top_p",
                      "typical_p",
                      "tf_legacy_loss",
                      "use_bfloat16",
                      "transformers.js_config",
                      "unsloth_fixed",
                      "unsloth_version",
                      "summary_activation",
                      "summary_first_dropout",
                      "summary_proj_to_labels",
                      "summary_type",
                      "summary_use_proj"};

}  // namespace

bool is_model_key(ModelType type, const std::string& key) {
  if (key == "attention_bias") return type == ModelType::llama || type == ModelType::qwen3;
  if (key == "mlp_bias") return type == ModelType::llama;
  return (type == ModelType::gpt2 ? kGpt2Keys : kLlamaKeys).contains(key);
}

bool may_be_null(const std::string& key) {
  return kOptional.contains(key);
}

bool is_harmless_key(ModelType type, const std::string& key) {
  // Qwen2 has its biases whatever this key says.
  if (type == ModelType::qwen2 && key == "attention_bias") return true;
  return kSpecial.contains(key) || kHarmless.contains(key);
}

const char* neutral_value(const std::string& key) {
  static const std::map<std::string, const char*> keys{
      {"scale_attn_weights", "true"},
      {"scale_attn_by_inverse_layer_idx", "false"},
      {"reorder_and_upcast_attn", "false"},
      {"add_cross_attention", "false"},
      {"is_encoder_decoder", "false"},
      {"tie_encoder_decoder", "false"},
      {"pruned_heads", "{}"},
      {"quantization_config", "null"},
      {"compression_config", "null"},
      {"partial_rotary_factor", "1"},
      {"rotary_pct", "1"},
      {"rope_interleaved", "false"},
      {"use_mrope", "false"},
      {"attention_multiplier", "null"},
      {"query_pre_attn_scalar", "null"},
      {"residual_multiplier", "1"},
      {"embedding_multiplier", "1"},
      {"logits_scaling", "1"},
      {"logit_scale", "1"},
      {"logits_scale", "1"},
      {"attn_logit_softcapping", "null"},
      {"final_logit_softcapping", "null"},
      {"attn_temperature_tuning", "false"},
      {"no_rope_layers", "null"},
      {"no_rope_layer_interval", "null"},
      {"use_bidirectional_attention", "false"},
      {"use_qk_norm", "null"},
      {"qk_layernorm", "null"},
      {"qk_norm", "null"},
      {"clip_qkv", "null"},
      {"attention_sinks", "null"},
      {"num_experts", "0"},
      {"num_local_experts", "0"},
      {"attention_bias", "false"},
      {"qkv_bias", "null"},
      {"mlp_bias", "false"},
      {"lm_head_bias", "false"},
  };
  const auto found = keys.find(key);
  return found == keys.end() ? nullptr : found->second;
}

}  // namespace xtrain
