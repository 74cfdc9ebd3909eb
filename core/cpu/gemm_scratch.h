#pragma once
// What the kernels of the tiled product share.

#include <optional>

#include "core/cpu/register_tile.h"
#include "core/tensor.h"

namespace xtrain {

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
constexpr int64_t round_up(int64_t a, int64_t b) {
  return ceil_div(a, b) * b;
}

// Uninitialised elements, on the stack when they are few.
template <class A>
class Scratch {
 public:
  Scratch(const Context& ctx, int64_t count) {
    if (count <= kFew) return;
    block_.emplace(ctx.allocator, ctx.device, count * int64_t{sizeof(A)});
    data_ = reinterpret_cast<A*>(block_->bytes());
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  A* data() { return data_; }

 private:
  static constexpr int64_t kFew = 4096;
  alignas(kVectorBytes) A few_[kFew];
  std::optional<Storage> block_;
  A* data_ = few_;
};

}  // namespace xtrain
