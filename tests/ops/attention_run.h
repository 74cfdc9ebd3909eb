#pragma once
// One call of attention, forward and backward, on any device.

#include <vector>

#include "core/copy.h"
#include "ops/attention/attention.h"
#include "support/catch.h"
#include "support/doubles.h"
#include "support/op_tests.h"

namespace xtrain {

// q, k, v and the upstream gradient.
struct AttentionInputs {
  Tensor q, k, v, dy;
};

struct AttentionResults {
  std::vector<double> o, dq, dk, dv;

  bool operator==(const AttentionResults&) const = default;
};

inline AttentionResults run_attention(const Context& ctx, const AttentionInputs& in,
                                      const AttentionOptions& options, AttentionKind kind) {
  Tape tape(ctx);
  const Var q = tape.leaf(in.q), k = tape.leaf(in.k), v = tape.leaf(in.v);
  const Var o = attention(ctx, q, k, v, options, kind);
  CHECK(o.value.is_contiguous());
  tape.backward(std::span(&o, 1), std::span(&in.dy, 1));
  return AttentionResults{as_doubles(ctx, o.value), as_doubles(ctx, tape.grad(q)),
                          as_doubles(ctx, tape.grad(k)), as_doubles(ctx, tape.grad(v))};
}

inline void check_close(const AttentionResults& got, const AttentionResults& reference,
                        double limit) {
  CHECK(relative_difference(got.o, reference.o) <= limit);
  CHECK(relative_difference(got.dq, reference.dq) <= limit);
  CHECK(relative_difference(got.dk, reference.dk) <= limit);
  CHECK(relative_difference(got.dv, reference.dv) <= limit);
}

}  // namespace xtrain
