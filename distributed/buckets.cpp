#include "distributed/buckets.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace xtrain {

Buckets::Buckets(const ParameterSet& parameters, int64_t elements, Start start)
    : start_(std::move(start)) {
  check(elements >= 1, "buckets: a bucket must hold at least one element; got ", elements);
  const int64_t size = parameters.arena_size();
  for (int64_t begin = 0; begin < size; begin += elements) {
    ranges_.push_back({begin, std::min(size, begin + elements)});
  }
  parameters_in_.resize(ranges_.size());
  for (const Parameter& p : parameters.list()) {
    const int64_t numel = numel_of(p.shape);
    if (!p.trainable || numel == 0) continue;
    const Span span{static_cast<size_t>(p.offset / elements),
                    static_cast<size_t>((p.offset + numel - 1) / elements)};
    for (size_t i = span.first; i <= span.last; ++i) ++parameters_in_[i];
    spans_[&p] = span;
  }
  reset();
}

void Buckets::reset() {
  missing_ = parameters_in_;
  started_ = 0;
}

void Buckets::ready(const Parameter& parameter) {
  const auto found = spans_.find(&parameter);
  if (found == spans_.end()) return;  // frozen, or of another set: nobody waits for it
  for (size_t i = found->second.first; i <= found->second.last; ++i) {
    check(--missing_[i] >= 0, "buckets: the gradient of ", parameter.name,
          " was final before; each is so once a step");
  }
  while (started_ < ranges_.size() && missing_[started_] == 0) start_next();
}

void Buckets::start_next() {
  start_(ranges_[started_++]);
}

void Buckets::flush() {
  while (started_ < ranges_.size()) start_next();
  reset();
}

}  // namespace xtrain
