#pragma once
// The role of this process among those that train one model together. The base class is a lone
// process, which owns everything; the trainer does not know of any other.

#include <cstdint>

#include "autodiff/parameter.h"

namespace xtrain {

// Elements [begin, end) of the arenas.
struct ArenaRange {
  int64_t begin = 0, end = 0;
};

class Replica {
 public:
  virtual ~Replica() = default;

  virtual int rank() const { return 0; }
  virtual int size() const { return 1; }

  // Before training: the parameters whose gradients will be summed over all replicas.
  virtual void attach(ParameterSet& parameters) { arena_size_ = parameters.arena_size(); }

  // In the last micro-step of a step: the parameter's gradient is final on this replica.
  virtual void grad_ready(Parameter&) {}
  // After it: returns when the gradients in the owned range are the sums over all replicas.
  virtual void finish_grads() {}

  // In the order of the context's queue: every element of `values`, f64 on the device, becomes its
  // sum over all replicas, the same on each.
  virtual void sum(const Context&, Tensor /*values*/) {}

  // The part of the arenas that this replica's optimizer updates.
  virtual ArenaRange owned() const { return {0, arena_size_}; }
  // After the update: makes every replica's values whole again.
  virtual void parameters_updated() {}

 private:
  int64_t arena_size_ = 0;
};

}  // namespace xtrain
