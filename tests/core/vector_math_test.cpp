#include "core/cpu/vector_math.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/catch.h"

using namespace xtrain;

namespace {

// The largest difference of f from the f64 function at 100,001 points of [low, high]: as it is, or
// as a share of what it should be.
template <class F, class G>
double farthest(F f, G exact, double low, double high, bool as_share) {
  constexpr int kPoints = 100'000;
  double most = 0;
  for (int i = 0; i <= kPoints; ++i) {
    const auto x = static_cast<float>(low + (high - low) * i / kPoints);
    const double want = exact(double{x}), apart = std::abs(double{f(x)} - want);
    most = std::max(most, as_share ? apart / std::abs(want) : apart);
  }
  return most;
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("the exponential in f32 is right to about a unit in the last place", "[core]") {
  const auto f = [](float x) { return vector_exp(x); };
  const auto exact = [](double x) { return std::exp(x); };
  CHECK(farthest(f, exact, -87.3, 88.7, true) < 1.5e-7);
  CHECK(farthest(f, exact, -1.0, 1.0, true) < 1.5e-7);
  CHECK(vector_exp(0.0f) == 1.0f);
  CHECK(vector_exp(-88.0f) == 0.0f);
  CHECK(vector_exp(-kInfinity) == 0.0f);
  CHECK(vector_exp(89.0f) == kInfinity);
  CHECK(std::isnan(vector_exp(std::nanf(""))));
}

TEST_CASE("tanh and the sigmoid in f32 are right", "[core]") {
  const auto tanh = [](float x) { return vector_tanh(x); };
  CHECK(farthest(
            tanh, [](double x) { return std::tanh(x); }, 1e-4, 9.0, true) < 4e-7);
  CHECK(farthest(
            tanh, [](double x) { return std::tanh(x); }, -9.0, 9.0, false) < 2e-7);
  const auto sigmoid = [](float x) { return vector_sigmoid(x); };
  const auto exact = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
  CHECK(farthest(sigmoid, exact, -80.0, 80.0, true) < 3e-7);
}

TEST_CASE("the normal distribution in f32 is right around 0, far out and in between", "[core]") {
  const auto f = [](float x) { return vector_normal_share(x); };
  const auto exact = [](double x) { return 0.5 * std::erfc(-x * M_SQRT1_2); };
  CHECK(farthest(f, exact, -20.0, 20.0, false) < 1e-7);
  CHECK(farthest(f, exact, -1.3, 1.3, false) < 1e-7);
  CHECK(farthest(f, exact, 0.0, 20.0, true) < 2e-7);
  CHECK(farthest(f, exact, -5.0, 0.0, true) < 1.5e-6);
  CHECK(farthest(f, exact, -13.0, -5.0, true) < 1e-5);
  CHECK(vector_normal_share(0.0f) == 0.5f);
  CHECK(vector_normal_share(-kInfinity) == 0.0f);
  CHECK(vector_normal_share(kInfinity) == 1.0f);
  CHECK(vector_normal_share(-1e30f) == 0.0f);
  CHECK(std::isnan(vector_normal_share(std::nanf(""))));
}
