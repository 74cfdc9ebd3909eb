#include <cmath>
#include <limits>

#include "core/check_indices.h"
#include "core/copy.h"
#include "core/error.h"
#include "support/catch.h"
#include "support/gpu.h"

using namespace xtrain;

namespace {

// Values that round up, down and to even in bf16, with the special ones.
std::vector<double> mixed_values(int64_t count) {
  const RandomStream stream = random_stream(9, 0, 0);
  std::vector<double> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = 8.0 * stream.uniform(0, i) - 4.0;
  const double specials[] = {0.0,
                             -0.0,
                             1.00390625,
                             1.01171875,
                             std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN(),
                             1e300,
                             1e-320,
                             1.0 + 0x1p-8 + 0x1p-40};
  for (size_t i = 0; i < std::size(specials) && i < values.size(); ++i) values[i] = specials[i];
  return values;
}

bool same(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i] && !(std::isnan(a[i]) && std::isnan(b[i]))) return false;
  }
  return true;
}

// x as a device would see it after casts to `first` and back to f64, taken through a transpose.
std::vector<double> through(const Context& ctx, const std::vector<double>& values, Dtype dtype) {
  const int64_t rows = 7, columns = static_cast<int64_t>(values.size()) / rows;
  const Tensor x = cast(ctx, from_host(ctx, values, {rows, columns}), dtype);
  Tensor sum = contiguous(ctx, x.transpose(0, 1));
  add_into(ctx, x.transpose(0, 1), sum);
  return to_host<double>(ctx, cast(ctx, sum, Dtype::f64));
}

// The message of the Error that `call` throws.
template <class Call>
std::string failure(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("copies, casts and sums have the bits of the CPU", "[cuda]") {
  const Context cpu = cpu_context(1);
  for (int64_t count : {7, 21, 7 * 129, 7 * 4096}) {
    const std::vector<double> values = mixed_values(count);
    for (Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
      INFO(count << " values through " << dtype);
      CHECK(same(through(test_cuda_context(), values, dtype), through(cpu, values, dtype)));
    }
  }
}

TEST_CASE("unaligned and strided slices are copied whole and nothing beside them", "[cuda]") {
  const Context& ctx = test_cuda_context();
  Tensor target = empty(ctx, {3, 67}, Dtype::bf16);
  fill(ctx, target, 1.0);
  const Tensor source = empty(ctx, {3, 40}, Dtype::bf16);
  fill(ctx, source, 2.0);
  copy(ctx, source.slice(1, 1, 33), target.slice(1, 5, 33));
  const auto got = to_host<BFloat16>(ctx, target);
  for (int i = 0; i < 3 * 67; ++i) {
    const int column = i % 67;
    CHECK(got[i] == (column >= 5 && column < 38 ? 2.0f : 1.0f));
  }
}

TEST_CASE("a tensor of more than 2^31 elements is filled and copied to its end", "[cuda]") {
  const Context& ctx = test_cuda_context();
  const int64_t count = (int64_t{1} << 31) + 5;
  Tensor x = empty(ctx, {count}, Dtype::bf16);
  fill(ctx, x, 3.0);
  fill(ctx, x.slice(0, count - 2, 1), 7.0);
  const Tensor y = cast(ctx, x, Dtype::f32);
  const auto end = to_host<float>(ctx, y.slice(0, count - 3, 3));
  CHECK(end == std::vector<float>{3.0f, 7.0f, 3.0f});
}

TEST_CASE("the pool counts bytes in use and their peak", "[cuda]") {
  const Context& ctx = test_cuda_context();
  const int64_t before = ctx.allocator->current_bytes();
  ctx.allocator->reset_peak();
  {
    const Tensor a = empty(ctx, {1 << 20}, Dtype::f32);
    CHECK(ctx.allocator->current_bytes() - before == 4 << 20);
    { const Tensor b = empty(ctx, {1 << 20}, Dtype::f64); }
    CHECK(ctx.allocator->current_bytes() - before == 4 << 20);
  }
  CHECK(ctx.allocator->current_bytes() == before);
  CHECK(ctx.allocator->peak_bytes() - before == 12 << 20);
}

TEST_CASE("memory that is not there is an error with the sizes", "[cuda]") {
  const Context& ctx = test_cuda_context();
  CHECK(failure([&] {
          empty(ctx, {int64_t{1} << 44}, Dtype::f64);
        }).find("out of memory: 140737488355328 bytes wanted") != std::string::npos);
  const Tensor x = zeros(ctx, {4}, Dtype::f32);  // and the context goes on
  CHECK(to_host<float>(ctx, x) == std::vector<float>(4, 0.0f));
}

TEST_CASE("copies from and to pinned memory run in the order of the queue", "[cuda]") {
  const Context& ctx = test_cuda_context();
  Tensor source = host_tensor(ctx, {1000}, Dtype::i32);
  for (int i = 0; i < 1000; ++i) source.mutable_data<int32_t>()[i] = i;
  const Tensor on_device = empty(ctx, {1000}, Dtype::i32);
  const Tensor back = host_tensor(ctx, {1000}, Dtype::i32);
  fill(ctx, on_device, -1.0);
  upload(ctx, source, on_device);
  download(ctx, on_device, back);
  fill(ctx, on_device, -2.0);
  ctx.queue->record()->wait();
  for (int i = 0; i < 1000; ++i) CHECK(back.data<int32_t>()[i] == i);
}

TEST_CASE("an index that a kernel must not follow is an error when the host waits", "[cuda]") {
  const Context& ctx = test_cuda_context();
  const Tensor ids = from_host(ctx, std::vector<int32_t>{0, 3, 4, -1}, {4});
  const std::string message = "embedding: ids must lie in [0, 4); got ";
  check_indices(ctx, "embedding", "ids", ids.slice(0, 0, 2), 4);
  CHECK_NOTHROW(ctx.queue->synchronize());
  check_indices(ctx, "embedding", "ids", ids.slice(0, 0, 3), 4);
  CHECK_THROWS_WITH(ctx.queue->record()->wait(), message + "4 at position 2");
  CHECK_NOTHROW(ctx.queue->synchronize());
  check_indices(ctx, "embedding", "ids", ids.slice(0, 3, 1), 4, -1);
  CHECK_NOTHROW(ctx.queue->synchronize());
  check_indices(ctx, "embedding", "ids", ids.slice(0, 3, 1), 4, -100);
  CHECK_THROWS_WITH(to_host<int32_t>(ctx, ids),
                    "embedding: ids must lie in [0, 4) or be the ignore index -100; got -1 at "
                    "position 0");
}

TEST_CASE("tensors of another device are refused by name", "[cuda]") {
  const Context& ctx = test_cuda_context();
  const Context cpu = cpu_context(1);
  const Tensor x = zeros(cpu, {2}, Dtype::f32);
  CHECK_THROWS_WITH(copy(ctx, x, zeros(ctx, {2}, Dtype::f32)),
                    "copy: tensors must lie on one device; got cpu to cuda:0");
  CHECK_THROWS_WITH(fill(ctx, x, 1.0),
                    "fill: tensor must lie on the context's device cuda:0; got cpu");
}

TEST_CASE("a GPU that is not there is refused", "[cuda]") {
  CHECK(failure([] { cuda_context(99); }).find("device cuda:99: this process sees") == 0);
}
