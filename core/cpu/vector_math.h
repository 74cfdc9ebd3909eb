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

// The share of the standard normal distribution below x: 1/2 (1 + erf(x / sqrt 2)). What it returns
// is a sum, or chosen between two values: a product might be rounded by itself or only with what is
// added to it, and so have other bits from one loop to the next.
inline double vector_normal_share(double x) {
  return 0.5 + 0.5 * std::erf(x * M_SQRT1_2);
}
// In f32 within 1e-7, and within 1.5e-6 of itself down to -5 and 1e-5 down to -13. Around 0
// it is 1/2 + x P(x^2), further out exp(-x^2 / 2) t Q(t) with t = 1 / (1 + 0.4 |x|), or 1 less
// that; P and Q interpolate what they stand for in Chebyshev's points of |x| <= 1.25 and 1.25
// to 14.
inline float vector_normal_share(float x) {
  const float x2 = x * x;
  float p = 4.769279e-7f;
  p = p * x2 - 9.062472e-6f;
  p = p * x2 + 1.15039315e-4f;
  p = p * x2 - 1.1871154e-3f;
  p = p * x2 + 9.973502e-3f;
  p = p * x2 - 0.066490375f;
  p = p * x2 + 0.3989423f;
  const float distance = std::abs(x), t = 1.0f / (1.0f + 0.4f * distance);
  float q = 4.1658925e-3f;
  q = q * t + 0.05780908f;
  q = q * t - 0.17620096f;
  q = q * t + 0.10019641f;
  q = q * t + 0.056928243f;
  q = q * t + 0.13881901f;
  q = q * t + 0.15910819f;
  q = q * t + 0.15959597f;
  const float tail = vector_exp(-0.5f * x2) * (t * q);
  const float outer = x < 0.0f ? tail : 1.0f - tail;  // NaN stays NaN
  return distance < 1.25f ? 0.5f + x * p : outer;
}

}  // namespace xtrain
