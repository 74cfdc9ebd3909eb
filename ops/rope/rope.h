#pragma once
// Rotary position embedding (Su et al., arXiv 2104.09864). x [B, T, H, D] with even D: at position
// p the pair of elements i turns by the angle a = p theta^(-2i/D), i in [0, D/2):
//
//   y1 = x1 cos a - x2 sin a          dx1 =  dy1 cos a + dy2 sin a
//   y2 = x2 cos a + x1 sin a          dx2 = -dy1 sin a + dy2 cos a
//
// Backward is the rotation by -a; kept for it: table and positions, not x.

#include "autodiff/tape.h"

namespace xtrain {

// Which elements form pair i: (i, i + D/2), as in the Hugging Face layouts of Llama and Qwen3, or
// (2i, 2i + 1), as in the paper.
enum class RopePairing : uint8_t { halves, adjacent };

// cos a and sin a, [P, D/2] by position; f64 for f64, else f32.
struct RopeTable {
  Tensor cos, sin;
  bool is_checked = false;  // positions lie within the table: ops do not look

  int64_t positions() const { return cos.size(0); }
  int64_t head_dim() const { return 2 * cos.size(1); }
};

// The table for a computation in `dtype`, for positions [0, positions). Angles are formed in f64.
// Error when head_dim is odd or not positive, or theta is not positive.
RopeTable rope_table(const Context& ctx, int64_t positions, int64_t head_dim, double theta,
                     Dtype dtype);

// positions [B, T] i32. x may be a view: it is read by its strides, and copied only when its last
// dimension is not contiguous. y is contiguous and has the dtype of x. Error when a position lies
// outside the table or a shape or dtype does not fit.
Var rope(const Context& ctx, const Var& x, const Tensor& positions, const RopeTable& table,
         RopePairing pairing);

// Error, in the name of `op`, unless the table and the positions serve x: heads of `head_dim`
// elements of `dtype` in `batch` sequences of `time` tokens.
void check_rope(const Context& ctx, const char* op, const RopeTable& table, const Tensor& positions,
                int64_t batch, int64_t time, int64_t head_dim, Dtype dtype);

}  // namespace xtrain
