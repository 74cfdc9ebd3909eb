#pragma once
// A contiguous tensor as what carries bytes between ranks sees it.

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/tensor.h"

namespace xtrain {

struct Elements {
  std::byte* bytes = nullptr;  // on the tensor's device
  int64_t count = 0;
  Dtype dtype = Dtype::f32;

  // Elements [begin, end), as far as they exist.
  Elements part(int64_t begin, int64_t end) const;
  std::span<std::byte> span() const;
};

// The tensor must outlive the result. Error naming the operation when it is not contiguous or lies
// elsewhere. Counts as a write.
Elements elements_of(Tensor& x, const Device& device, const char* operation);

// Error naming the operation unless values are `size` parts like own.
void check_own_part(const Tensor& own, const Tensor& values, int size, const char* operation);

}  // namespace xtrain
