#pragma once
// What the benchmarks share: data to compute on, and times.

#include <functional>

#include "core/tensor.h"

namespace xtrain {

// Standard normal elements. A block of them is repeated, since drawing every one would take longer
// than computing on them. (On zeros chips run faster than in training.)
Tensor normal_tensor(const Context& ctx, const Shape& shape, Dtype dtype, uint64_t seed);

// A call to be timed, and what has to be made ready for it outside of the time. Both get the number
// of the call, below kTimedCalls.
struct TimedCall {
  std::function<void(int call)> run;
  std::function<void(int call)> prepare = [](int) {};
};
inline constexpr int kTimedCalls = 12;

// Seconds of the device for one call, in a row of calls: the median of several rounds, after one
// that does not count. What starting and waiting for a row takes is not in it.
double seconds_per_call(const Context& ctx, const TimedCall& timed);

// The same for calls that need nothing made ready.
double seconds_per_call(const Context& ctx, const std::function<void()>& run);

// The same for calls that several processes make together and that wait for each other: how many
// are made does not depend on the time, which every process sees differently.
double seconds_per_joint_call(const Context& ctx, const std::function<void()>& run);

// A copy, with whose rate those of other work are compared.
struct TimedCopy {
  double seconds = 0.0, bytes = 0.0;  // bytes: read and written
  double rate() const { return bytes / seconds; }
};
// Of a tensor of standard normal elements.
TimedCopy time_copy(const Context& ctx, const Shape& shape, Dtype dtype);

}  // namespace xtrain
