#pragma once
// Elementary functions that compilers can turn into vector code inside a loop: no branches, no
// calls. The f64 versions are the library's: f64 is the oracle, not the fast path.

#include <bit>
#include <cmath>
#include <cstdint>

namespace xtrain {

inline double vector_exp(double x) {
  return std::exp(x);
}

// exp(x) in f32 to about 1 unit in the last place; 0 below -87.3 and infinity above 88.7.
// x = n ln 2 + r with |r| <= ln 2 / 2; exp(r) by its Taylor polynomial of degree 7, whose remainder
// there is below 2^-27; n is added to the exponent. Beyond the bounds that gives nonsense, which is
// not taken.
inline float vector_exp(float x) {
  constexpr float kLog2e = 1.44269504f;
  constexpr float kLn2High = 0.693145752f, kLn2Low = 1.42860677e-6f;  // their sum is ln 2
  // The last floats whose exponentials are normal numbers.
  constexpr float kLowest = -87.3365402f, kHighest = 88.7228317f;
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  constexpr float kRound = 12582912.0f;
  const float shifted = x * kLog2e + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 1.0f / 5040.0f;
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  // The shift drops all of `shifted` but n.
  const float y =
      std::bit_cast<float>(std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(shifted) << 23));
  const float bounded = x <= kHighest ? y : x + INFINITY;  // NaN stays NaN
  return x < kLowest ? 0.0f : bounded;
}

// 1 / (1 + exp(-x)) without overflow.
template <class A>
inline A vector_sigmoid(A x) {
  return A{1} / (A{1} + vector_exp(-x));
}

// tanh(x) = 1 - 2 / (exp(2x) + 1). Relative accuracy near 0 comes from the odd Taylor polynomial.
inline double vector_tanh(double x) {
  return std::tanh(x);
}
inline float vector_tanh(float x) {
  const float x2 = x * x;
  const float small =
      x + x * x2 * (-1.0f / 3 + x2 * (2.0f / 15 + x2 * (-17.0f / 315 + x2 * (62.0f / 2835))));
  const float large = 1.0f - 2.0f / (vector_exp(2.0f * x) + 1.0f);
  return std::abs(x) < 0.3f ? small : large;
}

}  // namespace xtrain
