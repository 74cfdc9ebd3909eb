#pragma once
// One example of an op: inputs, the call, and what it should equal. Tests, gradcheck and bench_ops
// take their shapes from the same cases.

#include <functional>
#include <string>
#include <vector>

#include "autodiff/grad_check.h"
#include "autodiff/tape.h"

namespace xtrain {

// How an input's elements are drawn.
enum class Fill : uint8_t {
  normal,    // standard normal
  positive,  // uniform in [0.5, 2)
  nonzero,   // uniform in [-2, -0.25) or [0.25, 2): away from a kink at 0
  indices,   // i32, uniform in [0, bound)
  given,     // i32 or floating, `values` in order
};

struct CaseInput {
  std::string name;
  Shape shape;
  Fill fill = Fill::normal;
  int64_t bound = 0;                // indices
  std::vector<double> values = {};  // given
  Dtype dtype = Dtype::f32;         // given: i32 for integers, else drawn in the dtype under test

  bool is_integer() const {
    return fill == Fill::indices || (fill == Fill::given && dtype == Dtype::i32);
  }
};

using OpCall = std::function<std::vector<Var>(const Context& ctx, std::span<const Var> inputs)>;

struct OpCase {
  std::string op;       // as users call it: "gelu"
  std::string variant;  // what this case is about: "tanh, 3x65"
  std::vector<CaseInput> inputs;
  OpCall run;
  OpCall twin = {};       // the same function built from other ops; empty when there is none
  int64_t reduction = 1;  // length of the longest sum that forms an output or gradient element
  // Where a result is zero only because terms cancel, their size: that of the rounding to expect.
  double cancelling = 0.0;
  bool dropout = false;  // draws random numbers: run in training mode
};

// The case's inputs in a dtype. Values are rounded to `rounded` first, so that the f64 oracle can
// be fed what a bf16 kernel sees. The same numbers for every dtype.
std::vector<Tensor> case_inputs(const Context& ctx, const OpCase& c, Dtype dtype, Dtype rounded);

// Central differences for every floating input, in f64.
std::vector<GradCheckInput> grad_check(const Context& ctx, const OpCase& c);

// The op families of the build (the folders of ops/), and the cases of one; Error for another name.
std::vector<std::string> op_families();
std::vector<OpCase> op_cases(const std::string& family);

}  // namespace xtrain
