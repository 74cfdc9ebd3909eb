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
#include <functional>
#include <vector>

#include "autodiff/parameter.h"
#include "train/replica.h"

namespace xtrain {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
};

// What a checkpoint keeps besides the values: arenas [arena_size] in f64 for f64, else f32.
struct AdamWState {
  Tensor masters;  // the weights in full precision
  Tensor first_moments, second_moments;
};

class AdamW {
 public:
  // Moments are zero, masters are the parameters' values. Updates only elements of `owned`, ranges
  // that do not overlap, and of the parameters that are trainable now; keeps moments and masters of
  // `owned` only.
  AdamW(const Context& ctx, ParameterSet& parameters, const AdamWOptions& options,
        const ArenaRanges& owned);

  // Fresh weights (see initial_value): the masters unrounded, the values rounded from them.
  void initialize(const Context& ctx, uint64_t seed);

  // The numbers that change from step to step: the learning rate, 1 / (1 - beta1^t) and
  // 1 / sqrt(1 - beta2^t). `step` counts from 1.
  std::array<double, 3> step_scalars(int64_t step, double learning_rate) const;

  // One step on the parameters' gradients. `scalars` [3] f64 holds step_scalars and `scale` [4] f64
  // a GradScale of clip.h, both on the device: gradients count times its factor, and when they are
  // not finite nothing changes. From the last owned range to the first: `updated` is told of each
  // when its part of the step is on the queue.
  void step(const Context& ctx, const Tensor& scalars, const Tensor& scale,
            const std::function<void(ArenaRange)>& updated = {});

  // The arenas as they are; written to, they must go to set_state. Where not all is owned these are
  // copies, in which what is not owned has moments 0 and masters 0 or, where values are their own
  // masters, the values.
  AdamWState state(const Context& ctx) const;
  Tensor masters(const Context& ctx) const;
  // Takes over what is owned, and rounds all values from the masters.
  void set_state(const Context& ctx, const AdamWState& state);

 private:
  // A range of the arenas, how far before it its elements lie among those owned, and its pieces.
  struct Owned {
    ArenaRange range;
    int64_t shift = 0;
    int64_t first_piece = 0, pieces = 0;
  };
  void place(const ArenaRanges& owned);
  void make_pieces(const Context& ctx);
  bool owns_all() const;
  Tensor spread(const Context& ctx, const Tensor& owned) const;
  void collect(const Context& ctx, const Tensor& arena, Tensor owned) const;
  void set_masters(const Context& ctx, const Tensor& masters);

  ParameterSet& parameters_;
  AdamWOptions options_;
  std::vector<Owned> owned_;
  int64_t owned_size_ = 0;  // elements, gaps for alignment included
  Tensor masters_;          // [owned_size] for bf16; else undefined: values are their own masters
  Tensor first_moments_, second_moments_;  // [owned_size]
  Tensor pieces_;  // [n, 4] i64 on the device: what to update, see adamw_kernels.h
};

}  // namespace xtrain
