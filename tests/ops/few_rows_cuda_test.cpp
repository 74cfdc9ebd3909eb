// Products of few rows without a tape: a kernel makes the rows itself.

#include <cmath>
#include <functional>

#include "core/copy.h"
#include "core/error.h"
#include "ops/activation_linear/activation_linear.h"
#include "ops/arithmetic/arithmetic.h"
#include "ops/linear/linear.h"
#include "ops/norm_linear/norm_linear.h"
#include "support/catch.h"
#include "support/doubles.h"
#include "support/gpu.h"
#include "support/op_tests.h"
#include "support/tolerance.h"

using namespace xtrain;

namespace {

constexpr double kEps = 1e-5;

struct Sizes {
  int64_t rows, in, out;
};

// Less than a step of a warp, several steps of several warps, and more packs than threads.
constexpr Sizes kSizes[] = {{1, 16, 1},    {1, 264, 7},   {2, 1032, 300}, {3, 72, 33},
                            {5, 2048, 70}, {8, 264, 129}, {1, 8200, 5},   {1, 768, 4500}};

// The same numbers on every context, rounded to dtype.
class Inputs {
 public:
  Inputs(const Context& ctx, Dtype rounded, Dtype dtype)
      : ctx_(ctx), rounded_(rounded), dtype_(dtype) {}

  Tensor next(const Shape& shape) {
    const RandomStream stream = random_stream(9, 0, site_++);
    std::vector<double> values(numel_of(shape));
    for (size_t i = 0; i < values.size(); ++i) values[i] = 2.0 * stream.uniform(0, i) - 1.0;
    return cast(ctx_, cast(ctx_, from_host(ctx_, values, shape), rounded_), dtype_);
  }

 private:
  const Context& ctx_;
  Dtype rounded_, dtype_;
  uint64_t site_ = 0;
};

using Run = std::function<std::vector<Tensor>(const Context&, Inputs&, const Sizes&)>;

// Against the CPU's f64 fed the same rounded inputs.
void check_against_oracle(const Run& run) {
  const Context cpu = cpu_context(1);
  const Context& gpu = test_cuda_context();
  for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    for (const Sizes& s : kSizes) {
      INFO(dtype << ", " << s.rows << " rows of " << s.in << " to " << s.out);
      Inputs exact(cpu, dtype, Dtype::f64), inputs(gpu, dtype, dtype);
      const std::vector<Tensor> oracle = run(cpu, exact, s), got = run(gpu, inputs, s);
      REQUIRE(got.size() == oracle.size());
      for (size_t i = 0; i < got.size(); ++i) {
        INFO("result " << i);
        CHECK(relative_difference(as_doubles(gpu, got[i]), as_doubles(cpu, oracle[i])) <=
              tolerance(dtype, s.in));
      }
    }
  }
}

}  // namespace

TEST_CASE("linear of few rows on the GPU is right", "[cuda]") {
  for (const bool biased : {false, true}) {
    check_against_oracle([biased](const Context& ctx, Inputs& in, const Sizes& s) {
      const Tensor x = in.next({s.rows, s.in}), weight = in.next({s.out, s.in});
      const Tensor bias = biased ? in.next({s.out}) : Tensor();
      return std::vector<Tensor>{linear(ctx, x, weight, bias).value};
    });
  }
}

TEST_CASE("norm_linear of few rows on the GPU is right", "[cuda]") {
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
    for (const bool all : {false, true}) {  // that may be absent
      INFO(name_of(kind) << (all ? ", all inputs" : ", least inputs"));
      check_against_oracle([=](const Context& ctx, Inputs& in, const Sizes& s) {
        const Tensor x = in.next({s.rows, s.in});
        NormLinearParameters p{Var(), Var(), in.next({s.out, s.in}), Var()};
        Tensor branch;
        if (all) {
          branch = in.next({s.rows, s.in});
          p.norm_weight = in.next({s.in});
          if (kind == NormKind::layer) p.norm_bias = in.next({s.in});
          p.bias = in.next({s.out});
        }
        const NormLinear r = norm_linear(ctx, x, branch, p, kind, kEps);
        return std::vector<Tensor>{r.sum.value, r.y.value};
      });
    }
  }
}

TEST_CASE("swiglu_linear of few rows on the GPU is right", "[cuda]") {
  for (const bool biased : {false, true}) {
    check_against_oracle([biased](const Context& ctx, Inputs& in, const Sizes& s) {
      const Tensor gate_up = in.next({s.rows, 2 * s.in}), weight = in.next({s.out, s.in});
      const Tensor bias = biased ? in.next({s.out}) : Tensor();
      return std::vector<Tensor>{swiglu_linear(ctx, gate_up, weight, bias).value};
    });
  }
}

// Were an input read before the kernel that writes it is done, the bits would be others: each
// kernel writes over memory that the ones before have just read. All of them begin early; the
// weights keep what they make small.
TEST_CASE("kernels that begin before others are done give the same bits", "[cuda]") {
  constexpr int64_t kRows = 2, kWidth = 1024, kHidden = 3072;
  const auto last = [&](bool weights_rest) {
    Context ctx = test_cuda_context();
    Inputs in(ctx, Dtype::bf16, Dtype::bf16);
    const auto weight = [&](const Shape& shape, double factor) {
      return scale(ctx, in.next(shape), factor).value;
    };
    const NormLinearParameters up{in.next({kWidth}), Var(), weight({2 * kHidden, kWidth}, 0.05),
                                  Var()};
    const Tensor down = weight({kWidth, kHidden}, 0.02), out = weight({kWidth, kWidth}, 0.05);
    Var x = in.next({kRows, kWidth}), branch;
    ctx.queue->synchronize();
    ctx.weights_rest = weights_rest;
    for (int layer = 0; layer < 200; ++layer) {
      const NormLinear hidden = norm_linear(ctx, x, branch, up, NormKind::rms, kEps);
      x = hidden.sum;
      branch = linear(ctx, swiglu_linear(ctx, hidden.y, down, Var()), out, Var());
    }
    return as_doubles(ctx, branch.value);
  };
  const std::vector<double> expected = last(false);
  for (const double value : expected) REQUIRE(std::isfinite(value));
  for (int run = 0; run < 5; ++run) CHECK(last(true) == expected);
}

TEST_CASE("swiglu_linear of few rows on the GPU refuses a bias that does not fit", "[cuda]") {
  const Context& ctx = test_cuda_context();
  const Tensor gate_up = zeros(ctx, {1, 32}, Dtype::f32), weight = zeros(ctx, {8, 16}, Dtype::f32);
  CHECK_THROWS_WITH(swiglu_linear(ctx, gate_up, weight, zeros(ctx, {7}, Dtype::f32)),
                    "linear: bias must have shape (8) beside weight (8, 16); got (7)");
}
