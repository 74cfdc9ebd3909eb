#include <array>
#include <vector>

#include "core/copy.h"
#include "core/error.h"
#include "core/recorder.h"
#include "support/catch.h"
#include "support/gpu.h"

using namespace xtrain;

namespace {

std::vector<double> ones(int64_t count, double value) {
  return std::vector<double>(count, value);
}

}  // namespace

TEST_CASE("recorded work runs as often as it is asked for, and reads what lies in memory then",
          "[cuda]") {
  const Context& ctx = test_cuda_context();
  const Tensor step = empty(ctx, {100}, Dtype::f64), sum = zeros(ctx, {100}, Dtype::f64);
  Recorder recorder(ctx);
  int calls = 0;
  const auto work = [&] {
    ++calls;
    const Tensor copied = empty(recorder.context(), {100}, Dtype::f64);
    copy(recorder.context(), step, copied);
    add_into(recorder.context(), copied, sum);
  };
  for (int i = 1; i <= 5; ++i) {
    fill(ctx, step, i);
    recorder.run(0, work);
    CHECK(to_host<double>(ctx, sum) == ones(100, i * (i + 1) / 2));
  }
  CHECK(calls == (recorder.records() ? 2 : 5));
  fill(ctx, sum, 0.0);
  recorder.run(1, [&] { fill(recorder.context(), sum, 7.0); });
  recorder.run(0, work);
  CHECK(to_host<double>(ctx, sum) == ones(100, 12.0));
}

TEST_CASE("work that cannot be recorded is refused, and the queue goes on", "[cuda]") {
  const Context& ctx = test_cuda_context();
  if (!ctx.queue->records()) return;
  const Tensor x = zeros(ctx, {10}, Dtype::f64);
  std::vector<double> host(10, 3.0);
  Recorder copies(ctx);
  const auto copy_in = [&] {
    copies.context().queue->copy_in(host.data(), const_cast<double*>(x.data<double>()), 80);
  };
  copies.run(0, copy_in);
  CHECK_THROWS_WITH(copies.run(0, copy_in), "queue: recorded work must not copy from the host");
  Recorder grows(ctx);
  int64_t size = 5;
  const auto allocate = [&] {
    fill(grows.context(), empty(grows.context(), {size}, Dtype::f64), 0.0);
  };
  grows.run(0, allocate);
  size = 6;
  CHECK_THROWS_WITH(
      grows.run(0, allocate),
      "allocator: recorded work must ask for the memory of the run before it; it asks "
      "for 48 bytes more");
  size = 5;
  grows.run(0, allocate);
  grows.run(0, allocate);
  CHECK(to_host<double>(ctx, x) == ones(10, 3.0));
}
