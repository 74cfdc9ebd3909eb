#pragma once
// Under which names, cut and turned how, files hold the parameters of a model. One table serves
// reading and writing.
//
//   parameter (model.layers.N. left out)      Llama, Qwen2, Qwen3           GPT-2
//   model.embed_tokens.weight [V, C]          the same                      wte.weight
//   model.embed_positions.weight [P, C]       -                             wpe.weight
//   input_layernorm.*                         the same                      ln_1.*
//   self_attn.qkv_proj.* [(H + 2 KV) D, C]    q_proj.*, k_proj.*, v_proj.*  attn.c_attn.*, turned
//   self_attn.q_norm.weight, k_norm.weight    the same (Qwen3)              -
//   self_attn.o_proj.* [C, H D]               the same                      attn.c_proj.*, turned
//   post_attention_layernorm.*                the same                      ln_2.*
//   mlp.gate_up_proj.* [2 F, C]               gate_proj.*, up_proj.*        -
//   mlp.up_proj.* [F, C]                      -                             mlp.c_fc.*, turned
//   mlp.down_proj.* [C, F]                    the same                      mlp.c_proj.*, turned
//   model.norm.*                              the same                      ln_f.*
//   lm_head.weight [V, C], where not tied     the same                      the same
//
// GPT-2's names begin with "transformer.", its layers with "transformer.h.N."; its projections
// are stored [in, out]. Source: the models of https://github.com/huggingface/transformers.

#include <string>
#include <vector>

#include "core/shape.h"
#include "model/config.h"

namespace xtrain {

// A tensor of a file that holds some rows of a parameter: those behind the rows of the piece
// before.
struct TensorPiece {
  std::string tensor;
  Shape shape;  // in the file
  int64_t rows = 0;
  bool transposed = false;  // the file's [in, out] is the parameter's [out, in]
};

struct ParameterLayout {
  std::string parameter;
  Shape shape;
  std::vector<TensorPiece> pieces;
};

struct ModelLayout {
  std::vector<ParameterLayout> parameters;  // in the order in which the model adds them
  // Tensors that may be there and hold nothing that the model needs: causal masks and RoPE's
  // frequencies, which older versions wrote.
  std::vector<std::string> ignored;
  // A head that a tied model may have in full; it must equal `tied_to`. Empty where not tied.
  std::string tied_head, tied_to;
};

// This project's own: every parameter is a tensor of its name.
ModelLayout own_layout(const ModelConfig& config);

// Hugging Face's for the config's model_type. Without the prefix names begin behind "model." or
// "transformer.", as files of the bare decoder have them; lm_head.weight never has one.
ModelLayout hugging_face_layout(const ModelConfig& config, bool with_prefix = true);

// "model." or "transformer."
std::string hugging_face_prefix(ModelType type);

}  // namespace xtrain
