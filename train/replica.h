#pragma once
// The role of this process among those that train one model together. The base class is a lone
// process, which owns everything; the trainer does not know of any other.

#include <cstdint>
#include <vector>

#include "autodiff/parameter.h"

namespace xtrain {

// Elements [begin, end) of the arenas.
struct ArenaRange {
  int64_t begin = 0, end = 0;
};
using ArenaRanges = std::vector<ArenaRange>;

enum class Recordable : uint8_t { nothing, gradients, step };

class Replica {
 public:
  virtual ~Replica() = default;

  virtual int rank() const { return 0; }
  virtual int size() const { return 1; }

  // Before training: the parameters whose gradients will be summed over all replicas.
  virtual void attach(ParameterSet& parameters) { arena_size_ = parameters.arena_size(); }

  // In the last micro-step of a step: the parameter's gradient is final on this replica.
  virtual void grad_ready(Parameter&) {}
  // After it, in the order of the context's queue: the gradients in the owned ranges become the
  // sums over all replicas.
  virtual void finish_grads() {}

  // In the order of the context's queue: every element of `values`, f64 on the device, becomes its
  // sum over all replicas, the same on each.
  virtual void sum(const Context&, Tensor /*values*/) {}

  // The parts of the arenas that this replica's optimizer updates; those of several replicas may
  // overlap.
  virtual ArenaRanges owned() const { return {ArenaRange{0, arena_size_}}; }
  // The owned elements that this replica counts where each must be counted once.
  virtual ArenaRanges share() const { return owned(); }
  // The update of this range, one of owned(), is on the context's queue; the last range comes
  // first. Begins to bring its values to the other replicas. Until a replica's values are whole
  // again, each waits for its part before it is used: Parameter::before_use.
  virtual void updated(ArenaRange) {}
  // Makes whole what each replica's optimizer has updated in its owned ranges of an arena.
  virtual void gather(Tensor /*arena*/) {}

  // How much of a step may be recorded (core/recorder.h), because the replica's part of it is the
  // same work on the device every time, without the host. gradients: all before finish_grads, where
  // grad_ready does nothing and every value has been waited for.
  virtual Recordable recordable() const { return Recordable::step; }

  // After a wait for the queue: Error when another replica was lost on the way, so that what came
  // out of the work is undefined.
  virtual void check_others() const {}

 private:
  int64_t arena_size_ = 0;
};

}  // namespace xtrain
