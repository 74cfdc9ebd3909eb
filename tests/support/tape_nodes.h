#pragma once
// Small differentiable functions that show how gradients travel, and wrong ones.

#include "autodiff/tape.h"
#include "core/copy.h"
#include "ops/arithmetic/arithmetic.h"

namespace xtrain {

inline Tensor doubles(const Context& ctx, const std::vector<double>& values, const Shape& shape) {
  return from_host(ctx, values, shape);
}

inline Tensor ones(const Context& ctx, const Shape& shape, Dtype dtype = Dtype::f64) {
  Tensor x = empty(ctx, shape, dtype);
  fill(ctx, x, 1.0);
  return x;
}

inline Parameter make_parameter(const std::string& name, const Tensor& value) {
  Parameter p;
  p.name = name;
  p.shape = value.shape();
  p.value = value;
  return p;
}

// The walk from one output whose gradient is given.
inline void walk(Tape& tape, const Var& y, const Tensor& dy, const OnReady& on_ready = {}) {
  tape.backward(std::span(&y, 1), std::span(&dy, 1), on_ready);
}

// What a node saw in its backward.
struct Seen {
  int calls = 0;
  Tensor dy;      // as taken, when watched
  Tensor target;  // as written into
};

// y = x; shows the gradient tensor that reaches it, and passes it on.
class WatchNode final : public Node {
 public:
  explicit WatchNode(Seen* seen) : seen_(seen) {}
  const char* name() const override { return "watch"; }
  void backward(Gradients& g) override {
    ++seen_->calls;
    seen_->dy = g.take(0);
    g.give(0, seen_->dy);
  }

 private:
  Seen* seen_;
};

inline Var watch(const Var& x, Seen& seen) {
  return record<WatchNode>({x}, x.value, &seen);
}

// y = factor x, whose gradient is written into place, as matrix products do it.
class WrittenScaleNode final : public Node {
 public:
  WrittenScaleNode(double factor, Seen* seen) : factor_(factor), seen_(seen) {}
  const char* name() const override { return "written_scale"; }
  void backward(Gradients& g) override {
    const Tensor dx = scale(g.ctx(), g.take(0), factor_).value;
    g.write(0, [&](Tensor target, bool accumulate) {
      accumulate ? add_into(g.ctx(), dx, target) : copy(g.ctx(), dx, target);
      if (!seen_) return;
      ++seen_->calls;
      seen_->target = target;
    });
  }

 private:
  double factor_;
  Seen* seen_;
};

inline Var written_scale(const Context& ctx, const Var& x, double factor, Seen* seen = nullptr) {
  return record<WrittenScaleNode>({x}, scale(ctx, x.value, factor).value, factor, seen);
}

}  // namespace xtrain
