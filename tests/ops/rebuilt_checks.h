#pragma once
// Nodes that make a value again in backward instead of keeping it must give the bits of the nodes
// that keep it, on every device.

#include "core/error.h"
#include "ops/activation_linear/activation_linear.h"
#include "ops/linear/linear.h"
#include "ops/norm_linear/norm_linear.h"
#include "ops/swiglu/swiglu.h"
#include "support/catch.h"
#include "support/op_tests.h"

namespace xtrain {

// Values and gradients of `fused` and `kept` on the same inputs.
inline void require_same_bits(const Context& ctx, OpCase c, const OpCall& fused,
                              const OpCall& kept) {
  for (Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    OpRun run;
    run.dtype = run.rounded = dtype;
    c.run = fused;
    const OpValues got = run_case(ctx, c, run);
    c.run = kept;
    const OpValues expected = run_case(ctx, c, run);
    REQUIRE(got.names == expected.names);
    for (size_t i = 0; i < got.names.size(); ++i) {
      INFO(c.variant << " in " << dtype << ", " << got.names[i]);
      CHECK(got.values[i] == expected.values[i]);
    }
  }
}

inline void check_activation_linear_bits(const Context& ctx) {
  for (const int64_t width : {33, 264, 1024}) {  // single elements, packs, whole packs only
    OpCase c;
    c.inputs = {{.name = "x", .shape = {67, width}},
                {.name = "weight", .shape = {24, width}},
                {.name = "bias", .shape = {24}}};
    for (Activation kind :
         {Activation::relu, Activation::silu, Activation::gelu, Activation::gelu_tanh}) {
      c.variant = text(name_of(kind), ", width ", width);
      require_same_bits(
          ctx, c,
          [kind](const Context& at, std::span<const Var> in) {
            return std::vector<Var>{activation_linear(at, in[0], kind, in[1], in[2])};
          },
          [kind](const Context& at, std::span<const Var> in) {
            return std::vector<Var>{linear(at, activation(at, in[0], kind), in[1], in[2])};
          });
    }
    c.variant = text("swiglu, width ", width);
    c.inputs[0].shape = {67, 2 * width};
    require_same_bits(
        ctx, c,
        [](const Context& at, std::span<const Var> in) {
          return std::vector<Var>{swiglu_linear(at, in[0], in[1], in[2])};
        },
        [](const Context& at, std::span<const Var> in) {
          return std::vector<Var>{linear(at, swiglu(at, in[0]), in[1], in[2])};
        });
  }
}

inline void check_norm_linear_bits(const Context& ctx) {
  constexpr double kEps = 1e-5;
  const auto parameters = [](std::span<const Var> in, NormKind kind) {
    return NormLinearParameters{in[2], kind == NormKind::layer ? in[3] : Var(), in[4], in[5]};
  };
  for (NormKind kind : {NormKind::layer, NormKind::rms}) {
    // Rows of single elements, of one and of several packs a thread, and too long for registers.
    for (const int64_t width : {5, 33, 264, 768, 1024, 4096, 20000, 20003}) {
      const int64_t rows = width < 2000 ? 67 : 5;
      const Shape vector{width}, matrix{rows, width};
      OpCase c;
      c.variant = text(name_of(kind), ", width ", width);
      c.inputs = {{.name = "x", .shape = matrix},           {.name = "branch", .shape = matrix},
                  {.name = "norm_weight", .shape = vector}, {.name = "norm_bias", .shape = vector},
                  {.name = "weight", .shape = {4, width}},  {.name = "bias", .shape = {4}}};
      require_same_bits(
          ctx, c,
          [&](const Context& at, std::span<const Var> in) {
            const NormLinear r = norm_linear(at, in[0], in[1], parameters(in, kind), kind, kEps);
            return std::vector<Var>{r.sum, r.y};
          },
          [&](const Context& at, std::span<const Var> in) {
            const auto p = parameters(in, kind);
            const AddNorm r = add_norm(at, in[0], in[1], p.norm_weight, p.norm_bias, kind, kEps);
            return std::vector<Var>{r.sum, linear(at, r.normed, p.weight, p.bias)};
          });
      c.variant += ", no branch";
      require_same_bits(
          ctx, c,
          [&](const Context& at, std::span<const Var> in) {
            return std::vector<Var>{
                norm_linear(at, in[0], Var(), parameters(in, kind), kind, kEps).y};
          },
          [&](const Context& at, std::span<const Var> in) {
            const auto p = parameters(in, kind);
            const Var normed = norm(at, in[0], p.norm_weight, p.norm_bias, kind, kEps);
            return std::vector<Var>{linear(at, normed, p.weight, p.bias)};
          });
    }
  }
}

}  // namespace xtrain
