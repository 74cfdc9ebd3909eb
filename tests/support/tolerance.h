#pragma once
// The one place that says how far a result may be from its reference.

#include <cmath>
#include <cstdint>

#include "core/dtype.h"

namespace xtrain {

// Largest difference allowed, as a share of the reference's largest magnitude, for values computed
// in `dtype` through sums of `length` terms. Rounding errors of a sum of n terms grow like sqrt(n)
// units in the last place; the factor covers a handful of roundings before and after the sum. bf16
// values are summed in f32, so there only the roundings of inputs and result count.
inline double tolerance(Dtype dtype, int64_t length = 1) {
  constexpr double kRoundings = 4.0;
  const double growth = dtype == Dtype::bf16 ? 1.0 : std::sqrt(static_cast<double>(length));
  return kRoundings * epsilon_of(dtype) * growth;
}

// What finite differences in f64 resolve.
inline constexpr double kGradCheckTolerance = 1e-6;

// log(sum of exp) of attention scores in f32 from bf16 inputs, absolute.
inline constexpr double kLogSumTolerance = 1e-4;

// Flash attention in bf16 on tensor cores: the norm of a tensor's errors by the norm of the tensor.
// Rounding the result alone gives 1.6e-3; p, ds and, for the gradients, o are rounded as well.
inline constexpr double kFlashOutputNorm = 4e-3, kFlashGradientNorm = 1e-2;

// Two ways of computing one function, both in f64 or both in f32.
inline double twin_tolerance(Dtype dtype) {
  return dtype == Dtype::f64 ? 1e-12 : dtype == Dtype::f32 ? 1e-5 : 4.0 * epsilon_of(Dtype::bf16);
}

// How far flash and composed attention may be apart at the end of a freshly initialised model, in
// f32 one of 8 layers and width 768, in bf16 one of 4 layers and width 128: losses are per token,
// gradients in f32 by tensor as a share of its largest element, and those in bf16 all together,
// mean difference by mean size.
struct ModelTwinTolerance {
  double f32_loss = 1e-6, f32_logits = 1.7e-4, f32_gradients = 4e-5;
  double bf16_loss = 1.5e-4, bf16_logits_mean = 1.6e-3, bf16_logits_percentile99 = 5.9e-3;
  double bf16_gradients_mean = 1.2e-2;
};
inline constexpr ModelTwinTolerance kModelTwins;

// Largest difference between the CPU's and the GPU's f32 logits of the smaller one.
inline constexpr double kDeviceLogits = 2e-6;

}  // namespace xtrain
