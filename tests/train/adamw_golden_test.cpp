// AdamW against torch.optim.AdamW, from a file that tools/compare_pytorch.py --write-golden has
// written: start [n], gradients [steps, n], and the weights behind the last step.

#include <cstring>
#include <string>

#include "core/copy.h"
#include "model/hf/safetensors.h"
#include "support/catch.h"
#include "support/gpu.h"
#include "train/optimizer_checks.h"

using namespace xtrain;

namespace {

std::vector<double> doubles_of(const SafetensorsEntry& entry) {
  if (entry.dtype == "F64") {
    std::vector<double> values(entry.bytes.size() / sizeof(double));
    std::memcpy(values.data(), entry.bytes.data(), entry.bytes.size());
    return values;
  }
  REQUIRE(entry.dtype == "F32");
  std::vector<float> values(entry.bytes.size() / sizeof(float));
  std::memcpy(values.data(), entry.bytes.data(), entry.bytes.size());
  return {values.begin(), values.end()};
}

// The largest distance of a weight from PyTorch's.
double largest_difference(const Context& ctx, Dtype dtype) {
  const SafetensorsFile file(XT_SOURCE_DIR "/tests/golden/adamw.safetensors");
  CHECK(file.metadata().at("lr") == "0.01");
  CHECK(file.metadata().at("betas") == "(0.9, 0.95)");
  const AdamWOptions options{0.9, 0.95, 1e-8, 0.1};
  const std::vector<double> start = doubles_of(file.at("start"));
  const std::vector<double> gradients = doubles_of(file.at("gradients"));
  OneParameter one(ctx, dtype, ParameterKind::matrix, start);
  AdamW optimizer(ctx, one.set, options, one.all());
  const size_t n = start.size(), steps = gradients.size() / n;
  for (size_t step = 0; step < steps; ++step) {
    const auto first = gradients.begin() + static_cast<int64_t>(step * n);
    one.set_grad(ctx, {first, first + static_cast<int64_t>(n)});
    take_step(ctx, optimizer, one.set, static_cast<int64_t>(step) + 1, 0.01);
  }
  const std::vector<double> weights = doubles(ctx, one.parameter->value);
  const std::string name = dtype == Dtype::f64 ? "expected.f64" : "expected.f32";
  const std::vector<double> expected = doubles_of(file.at(name));
  double largest = 0.0;
  for (size_t i = 0; i < n; ++i) {
    CHECK(std::isfinite(weights[i]));
    largest = std::max(largest, std::abs(weights[i] - expected[i]));
  }
  return largest;
}

}  // namespace

TEST_CASE("AdamW equals PyTorch's over ten steps", "[optimizer]") {
  CHECK(largest_difference(cpu_context(1), Dtype::f32) <= 1e-7);
  CHECK(largest_difference(cpu_context(1), Dtype::f64) <= 1e-14);
}

TEST_CASE("AdamW on the GPU equals PyTorch's over ten steps", "[cuda]") {
  CHECK(largest_difference(test_cuda_context(), Dtype::f32) <= 1e-7);
  CHECK(largest_difference(test_cuda_context(), Dtype::f64) <= 1e-14);
}
