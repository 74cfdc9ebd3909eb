#include "tools/step_work.h"

#include <algorithm>
#include <utility>

namespace xtrain {
namespace {

// The first entry that the name holds decides.
constexpr std::pair<std::string_view, KernelKind> kKinds[] = {
    {"Gelu", KernelKind::activations},
    {"Silu", KernelKind::activations},
    {"Relu", KernelKind::activations},
    {"gate_forward", KernelKind::activations},
    {"gate_backward", KernelKind::activations},
    {"flash_forward", KernelKind::attention_forward},
    {"forward_by_queries", KernelKind::attention_forward},
    {"attend_to_part", KernelKind::attention_forward},
    {"combine_parts", KernelKind::attention_forward},
    {"masked_softmax_rows", KernelKind::attention_forward},
    {"masked_softmax_backward", KernelKind::attention_backward},
    {"query_gradients", KernelKind::attention_backward},
    {"key_gradients", KernelKind::attention_backward},
    {"query_terms", KernelKind::attention_backward},
    {"output_products", KernelKind::attention_backward},
    {"add_shares", KernelKind::attention_backward},
    {"backward_by_", KernelKind::attention_backward},
    {"normalize_rows", KernelKind::norms},
    {"norm_backward", KernelKind::norms},
    {"forward_tokens", KernelKind::norms},
    {"backward_tokens", KernelKind::norms},
    {"turn_heads", KernelKind::norms},
    {"fill_angles", KernelKind::norms},
    // Sums over tokens: of the partial sums of norms and activations in the type they come in, of a
    // bias gradient in two rounds by way of a wider one.
    {"sum_columns_of_pieces<float, float>", KernelKind::norms},
    {"sum_columns_of_pieces<double, double>", KernelKind::norms},
    {"sum_columns_of_pieces", KernelKind::bias_gradients},
    {"sum_rows_of_pieces", KernelKind::bias_gradients},
    {"linear_few_rows", KernelKind::products},
    {"gradients_of_rows", KernelKind::loss},
    {"losses_of_rows", KernelKind::loss},
    {"total_of_rows", KernelKind::loss},
    {"gather_units", KernelKind::embedding},
    {"number_ids", KernelKind::embedding},
    {"sum_windows", KernelKind::embedding},
    {"sum_pieces", KernelKind::embedding},
    {"radix_sort", KernelKind::embedding},
    {"adamw", KernelKind::optimizer},
    {"sum_squares", KernelKind::optimizer},
    {"sum_of_partials", KernelKind::optimizer},
    {"grad_scale_of", KernelKind::optimizer},
    {"multiply_", KernelKind::products},
    {"nvjet", KernelKind::products},
    {"cutlass", KernelKind::products},
    {"cublas", KernelKind::products},
    {"gemm", KernelKind::products},
};

double query_width(const ModelConfig& m) {
  return static_cast<double>(m.num_attention_heads * m.head_dim);
}

double key_width(const ModelConfig& m) {
  return static_cast<double>(m.num_key_value_heads * m.head_dim);
}

double forward_attention_per_token(const RunConfig& run) {
  return 2.0 * static_cast<double>(run.train.seq_len * run.model.num_hidden_layers) *
         query_width(run.model);
}
constexpr double kBackwardAttention = 2.5;  // of the forward pass

// Matrices of tokens x width that the norms and the turning of queries and keys move, in columns.
double norm_columns(const ModelConfig& m) {
  const double width = static_cast<double>(m.hidden_size), layers = m.num_hidden_layers;
  const double norms = (2 + 4 * 2 * layers) + (4 * 2 * layers + 3);  // the first and last have less
  const double turned = m.qk_norm ? 5 : m.positions == Positions::rope ? 4 : 0;
  return norms * width + turned * layers * (query_width(m) + key_width(m));
}

double activation_columns(const ModelConfig& m) {
  const double moved = m.activation == MlpKind::swiglu ? 3 + 5 : 2 + 3;
  return moved * static_cast<double>(m.num_hidden_layers * m.intermediate_size);
}

// Of gradients that do not bring their sums.
double bias_columns(const ModelConfig& m) {
  double columns = 0.0;
  if (m.attention_bias) columns += query_width(m) + 2 * key_width(m);
  if (m.mlp_bias && m.activation == MlpKind::swiglu) {
    columns += 2.0 * static_cast<double>(m.intermediate_size);
  }
  return columns * static_cast<double>(m.num_hidden_layers);
}

}  // namespace

std::string_view name_of(KernelKind kind) {
  constexpr std::string_view kNames[kKernelKinds] = {
      "products", "attention forward", "attention backward", "norms, rotary",  "activations",
      "loss",     "embedding",         "optimizer",          "bias gradients", "copies, other"};
  return kNames[static_cast<int>(kind)];
}

KernelKind kind_of_kernel(std::string_view name) {
  for (const auto& [part, kind] : kKinds) {
    if (name.find(part) != std::string_view::npos) return kind;
  }
  return KernelKind::other;
}

int64_t product_weights(const ModelConfig& m) {
  const int64_t queries = m.num_attention_heads * m.head_dim;
  const int64_t keys = m.num_key_value_heads * m.head_dim;
  const int64_t mlp = (m.activation == MlpKind::swiglu ? 3 : 2) * m.intermediate_size;
  const int64_t layer = m.hidden_size * (2 * queries + 2 * keys + mlp);
  return m.num_hidden_layers * layer + m.vocab_size * m.hidden_size;
}

double operations_per_token(const RunConfig& run) {
  return 6.0 * static_cast<double>(product_weights(run.model)) +
         (1.0 + kBackwardAttention) * forward_attention_per_token(run);
}

StepWork work_of_step(const RunConfig& run) {
  const ModelConfig& m = run.model;
  const Dtype dtype = run.train.exec.dtype;
  const double element = size_of(dtype), wide = size_of(accumulator_dtype(dtype));
  const double tokens = static_cast<double>(micro_steps(run.train) * run.train.batch_size) *
                        static_cast<double>(run.train.seq_len);
  const double width = static_cast<double>(m.hidden_size);
  const double vocab = static_cast<double>(m.vocab_size);
  const double parameters = static_cast<double>(parameter_count(m));
  const double matrix = tokens * element;  // of one column
  StepWork work;
  const auto of = [&](KernelKind kind) -> Work& { return work[static_cast<int>(kind)]; };
  of(KernelKind::products).operations = 6.0 * static_cast<double>(product_weights(m)) * tokens;
  of(KernelKind::attention_forward).operations = forward_attention_per_token(run) * tokens;
  of(KernelKind::attention_backward).operations =
      kBackwardAttention * forward_attention_per_token(run) * tokens;
  of(KernelKind::norms).bytes = norm_columns(m) * matrix;
  of(KernelKind::activations).bytes = activation_columns(m) * matrix;
  of(KernelKind::loss).bytes = 2.0 * vocab * matrix;
  of(KernelKind::embedding).bytes =
      3.0 * width * matrix + 2.0 * std::min(vocab, tokens) * width * wide;
  of(KernelKind::optimizer).bytes =
      parameters * ((2.0 + 6.0) * wide + (element < wide ? element : 0.0));
  of(KernelKind::bias_gradients).bytes = bias_columns(m) * matrix;
  return work;
}

}  // namespace xtrain
