#pragma once
// What every op must satisfy, checked on its cases.

#include <string>
#include <vector>

#include "core/context.h"
#include "ops/op_case.h"

namespace xtrain {

// Outputs and gradients of a case, all as f64 in row-major order; names say which.
struct OpValues {
  std::vector<std::string> names;
  std::vector<std::vector<double>> values;
};

// How a case is run.
struct OpRun {
  Dtype dtype = Dtype::f64;
  Dtype rounded = Dtype::f64;  // inputs are rounded to this first
  bool twin = false;
  bool taped = true;  // false: without gradients, as in inference, which some ops compute otherwise
  enum class Layout { contiguous, transposed, every_second } inputs = Layout::contiguous;
  enum class Upstream {
    random,
    random_transposed,
    ones,
    ones_expanded
  } upstream = Upstream::random;
};

OpValues run_case(const Context& ctx, const OpCase& c, const OpRun& run);

// Every check on the cases of one op family:
//   gradients equal finite differences; f32 and bf16, on a tape and without one, equal the f64
//   oracle fed the same rounded inputs; the twin, if any, agrees in values and gradients; strided
//   inputs and gradients give the same bits as contiguous ones; any number of threads and a second
//   run give the same bits; inputs are left as they were.
void check_op_cases(const std::string& family);

// The cases of one family on the GPU: values and gradients in every dtype equal the f64 oracle of
// the CPU fed the same rounded inputs; inputs are left as they were.
void check_op_values_on_gpu(const std::string& family);
// Finite differences hold for the GPU's own f64 kernels; the twin agrees; strided inputs and
// gradients, and a second run, give the same bits.
void check_op_consistency_on_gpu(const std::string& family);

// max |a - b| / max |b|, or / least where that is larger; the plain difference where both are 0;
// infinity when one is not finite and the other is not the same.
double relative_difference(const std::vector<double>& a, const std::vector<double>& b,
                           double least = 0.0);

}  // namespace xtrain
