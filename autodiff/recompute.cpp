#include "autodiff/recompute.h"

#include <memory>

#include "core/error.h"

namespace xtrain {
namespace {

class RecomputeNode final : public Node {
 public:
  // `sources` are the inputs and, behind them, the parameters.
  RecomputeNode(Block block, std::span<const Var> sources, size_t inputs, size_t outputs)
      : block_(std::move(block)), inputs_(inputs), outputs_(outputs) {
    for (const Var& x : sources) {
      sources_.push_back(std::make_unique<Saved>(*this, x.value));
      on_tape_.push_back(x.tape != nullptr);
      biased_.push_back(x.biased);
    }
  }

  const char* name() const override { return "recompute"; }

  void backward(Gradients& g) override {
    Tape tape(g.ctx());
    const std::vector<Var> inputs = inner_inputs(tape, g);
    const std::vector<Var> outputs = block_(&tape, inputs);
    std::vector<Tensor> gradients, column_sums;
    for (size_t i = 0; i < outputs_; ++i) {
      gradients.push_back(g.take(static_cast<int>(i)));
      column_sums.push_back(g.take_column_sums(static_cast<int>(i)));
    }
    tape.backward(outputs, gradients, {}, column_sums);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].tape) continue;
      Tensor dx = tape.grad(inputs[i]);
      if (dx.defined()) {
        g.give(static_cast<int>(i), std::move(dx), tape.column_sums(inputs[i]));
      }
    }
  }

 private:
  // Inputs on the inner tape start from what their gradients hold already, so that sums are formed
  // in the order in which they would be without recompute.
  std::vector<Var> inner_inputs(Tape& tape, Gradients& g) const {
    std::vector<Var> inputs;
    for (size_t i = 0; i < inputs_; ++i) {
      const Tensor& value = sources_[i]->tensor();
      if (!on_tape_[i]) {
        inputs.emplace_back(value);
        continue;
      }
      const int input = static_cast<int>(i);
      inputs.push_back(tape.leaf(value, g.dtype(input)));
      inputs.back().biased = biased_[i];
      tape.preset_grad(inputs.back(), g.release(input));
    }
    return inputs;
  }

  Block block_;
  std::vector<std::unique_ptr<Saved>> sources_;
  std::vector<bool> on_tape_, biased_;
  size_t inputs_, outputs_;
};

}  // namespace

std::vector<Var> recompute(Tape* tape, const Block& block, std::span<const Var> inputs,
                           std::span<Parameter* const> parameters) {
  std::vector<Var> values;
  for (const Var& x : inputs) values.emplace_back(x.value);
  const std::vector<Var> results = block(nullptr, values);
  if (!tape) return results;
  std::vector<Tensor> outputs;
  for (const Var& y : results) outputs.push_back(y.value);
  std::vector<Var> sources(inputs.begin(), inputs.end());
  for (Parameter* p : parameters) sources.push_back(tape->parameter(*p));
  auto node = std::make_unique<RecomputeNode>(block, sources, inputs.size(), outputs.size());
  std::vector<Var> recorded = tape->add(std::move(node), sources, std::move(outputs));
  for (size_t i = 0; i < results.size(); ++i) recorded[i].biased = results[i].biased;
  return recorded;
}

}  // namespace xtrain
