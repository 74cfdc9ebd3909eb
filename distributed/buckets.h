#pragma once
// Gradients in portions large enough to be worth a collective operation and small enough to leave
// while backward still works on the rest.
//
// A bucket is a range of the gradients' arena. Backward fills the arena from front to back, so the
// first bucket is complete first. Buckets are handed out in the order of their index, each when all
// gradients in it are final and all buckets before it have been handed out: on every rank the same
// order, whatever parameters the ranks use.

#include <functional>
#include <unordered_map>
#include <vector>

#include "autodiff/parameter.h"
#include "train/replica.h"

namespace xtrain {

class Buckets {
 public:
  using Start = std::function<void(ArenaRange)>;

  // `elements` of the arena a bucket, the last one the rest. The parameters must have their arenas
  // and outlive this.
  Buckets(const ParameterSet& parameters, int64_t elements, Start start);

  const std::vector<ArenaRange>& ranges() const { return ranges_; }

  // The parameter's gradient is final; once a step.
  void ready(const Parameter& parameter);
  // No more gradients come in this step: hands out what is left, and expects the next step.
  void flush();

 private:
  void start_next();
  void reset();

  struct Span {
    size_t first = 0, last = 0;  // indices of buckets
  };
  std::vector<ArenaRange> ranges_;
  std::vector<int> parameters_in_;  // of each bucket: those that get gradients
  std::unordered_map<const Parameter*, Span> spans_;
  Start start_;
  std::vector<int> missing_;  // of each bucket in this step
  size_t started_ = 0;
};

}  // namespace xtrain
