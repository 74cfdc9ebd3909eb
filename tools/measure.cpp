#include "tools/measure.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "core/copy.h"

namespace xtrain {
namespace {

double seconds_of_row(const Context& ctx, const TimedCall& timed, int calls) {
  for (int i = 0; i < calls; ++i) timed.prepare(i);
  ctx.queue->synchronize();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) timed.run(i);
  ctx.queue->synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

constexpr int kWarmUp = 2;

// From rows of `many` and of `few` calls, which take the same time to start and to be waited for.
double seconds_in_rows(const Context& ctx, const TimedCall& timed, int many, int few) {
  constexpr int kRounds = 7;
  std::vector<double> seconds;
  for (int round = 0; round <= kRounds; ++round) {
    const double long_row = seconds_of_row(ctx, timed, many);
    const double short_row = seconds_of_row(ctx, timed, few);
    if (round > 0) seconds.push_back((long_row - short_row) / (many - few));
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRounds / 2, seconds.end());
  return seconds[kRounds / 2];
}

}  // namespace

Tensor normal_tensor(const Context& ctx, const Shape& shape, Dtype dtype, uint64_t seed) {
  const int64_t count = numel_of(shape), block = std::min<int64_t>(count, 1 << 16);
  const RandomStream stream = random_stream(seed, 0, 0);
  std::vector<float> values(block);
  for (int64_t i = 0; i < block; ++i) values[i] = static_cast<float>(random_normal(stream, 0, i));
  const Tensor drawn = cast(ctx, from_host(ctx, values, {block}), dtype);
  const Tensor flat = empty(ctx, {count}, dtype);
  const int64_t blocks = block > 0 ? count / block : 0, whole = blocks * block;
  copy(ctx, drawn.reshape({1, block}).expand({blocks, block}),
       flat.slice(0, 0, whole).reshape({blocks, block}));
  copy(ctx, drawn.slice(0, 0, count - whole), flat.slice(0, whole, count - whole));
  return flat.reshape(shape);
}

double seconds_per_call(const Context& ctx, const TimedCall& timed) {
  constexpr double kLongCall = 2e-3;
  seconds_of_row(ctx, timed, kWarmUp);
  // Beside long calls what starting a row takes is little: a few of them will do.
  const bool is_long = seconds_of_row(ctx, timed, kWarmUp) > kWarmUp * kLongCall;
  return is_long ? seconds_in_rows(ctx, timed, 3, 1)
                 : seconds_in_rows(ctx, timed, kTimedCalls, kTimedCalls / 3);
}

double seconds_per_joint_call(const Context& ctx, const std::function<void()>& run) {
  const TimedCall timed{[&](int) { run(); }};
  seconds_of_row(ctx, timed, kWarmUp);
  return seconds_in_rows(ctx, timed, kTimedCalls, kTimedCalls / 3);
}

double seconds_per_call(const Context& ctx, const std::function<void()>& run) {
  return seconds_per_call(ctx, TimedCall{[&](int) { run(); }});
}

TimedCopy time_copy(const Context& ctx, const Shape& shape, Dtype dtype) {
  const Tensor from = normal_tensor(ctx, shape, dtype, 1);
  const Tensor to = empty_like(ctx, from);
  const double seconds = seconds_per_call(ctx, [&] { copy(ctx, from, to); });
  return {seconds, 2.0 * static_cast<double>(from.nbytes())};
}

}  // namespace xtrain
