#pragma once
// AdamW (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2). For gradient g at step t >= 1:
//
//   m = beta1 m + (1 - beta1) g
//   v = beta2 v + (1 - beta2) g^2
//   w = w - lr decay w - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
//
// Vectors (biases and norm weights) do not decay. m, v and w are kept in f64 for f64, else in f32;
// for bf16 w is a master copy, from which the bf16 values are rounded after every step. In f32 and
// f64 every device computes the same bits.

#include <array>

#include "autodiff/parameter.h"
#include "train/replica.h"

namespace xtrain {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
};

class AdamW {
 public:
  // Moments are zero, masters are the parameters' values. Updates only elements of `owned` and of
  // the parameters that are trainable now.
  AdamW(const Context& ctx, ParameterSet& parameters, const AdamWOptions& options,
        ArenaRange owned);

  // Fresh weights (see initial_value): the masters unrounded, the values rounded from them.
  void initialize(const Context& ctx, uint64_t seed);

  // The numbers that change from step to step: the learning rate, 1 / (1 - beta1^t) and
  // 1 / sqrt(1 - beta2^t). `step` counts from 1.
  std::array<double, 3> step_scalars(int64_t step, double learning_rate) const;

  // One step on the parameters' gradients. `scalars` [3] f64 holds step_scalars and `scale` [4] f64
  // a GradScale of clip.h, both on the device: gradients count times its factor, and when they are
  // not finite nothing changes.
  void step(const Context& ctx, const Tensor& scalars, const Tensor& scale);

  // What a checkpoint keeps of a parameter, as views: its weights in full precision and its
  // moments. Whoever writes masters must call masters_changed().
  Tensor master(const Parameter& parameter) const;
  Tensor first_moment(const Parameter& parameter) const;
  Tensor second_moment(const Parameter& parameter) const;
  void masters_changed(const Context& ctx);

 private:
  ParameterSet& parameters_;
  AdamWOptions options_;
  Tensor masters_;  // the values themselves unless they are bf16
  Tensor first_moments_, second_moments_;
  Tensor pieces_;  // [n, 3] i64 on the device: what to update, see adamw_kernels.h
};

}  // namespace xtrain
