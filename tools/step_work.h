#pragma once
// What a training step has to do at the least, by kind of kernel: the yardstick for its time.

#include <array>
#include <string>
#include <string_view>

#include "train/run_config.h"

namespace xtrain {

enum class KernelKind : uint8_t {
  products,
  attention_forward,
  attention_backward,
  norms,
  activations,
  loss,
  embedding,
  optimizer,
  bias_gradients,
  other
};
inline constexpr int kKernelKinds = 10;

std::string_view name_of(KernelKind kind);  // "attention forward"

// By the demangled name of a kernel, ours or the library's.
KernelKind kind_of_kernel(std::string_view name);

struct Work {
  double operations = 0.0;  // of products: additions and multiplications
  double bytes = 0.0;       // read and written, where these take longer
};

// Of an optimizer step with all its micro-steps, recompute not counted:
//
//   products        6 operations a weight of a product and token
//   attention       of what a causal mask leaves visible: 2 T operations a layer, token and column
//                   of the queries forward, 2.5 times as many backward
//   norms, rotary   each norm reads x and the branch and writes the sum and y; backward reads dy, x
//                   and the gradient that passes by, and writes one. Queries and keys are read and
//                   written once to be turned, and read once more where they are normalised
//   activations     each operand once, as an operation by itself
//   loss            the logits are read and written once
//   embedding       a row of the table read and written a token, its gradient read and added
//   optimizer       gradients read twice, masters and moments read and written, values written
//   bias gradients  what they are sums of, read once: of queries, keys and values and of gate and
//   up
//                   projections, since the gradients behind other biases bring their sums
using StepWork = std::array<Work, kKernelKinds>;  // by KernelKind
StepWork work_of_step(const RunConfig& run);

// Weights that a token is multiplied with, those of the head among them.
int64_t product_weights(const ModelConfig& model);
// Operations a token of products and attention, as above.
double operations_per_token(const RunConfig& run);

}  // namespace xtrain
