#include "distributed/elements.h"

#include <algorithm>

#include "core/dispatch_any.h"
#include "core/error.h"

namespace xtrain {

Elements Elements::part(int64_t begin, int64_t end) const {
  begin = std::min(begin, count);
  end = std::min(end, count);
  return {bytes + begin * size_of(dtype), end - begin, dtype};
}

std::span<std::byte> Elements::span() const {
  return {bytes, static_cast<size_t>(count * size_of(dtype))};
}

Elements elements_of(Tensor& x, const Device& device, const char* operation) {
  check(x.is_contiguous() && x.device() == device, operation,
        ": needs a contiguous tensor on device ", device, "; got shape ", x.shape(), " on ",
        x.device());
  Elements elements{nullptr, x.numel(), x.dtype()};
  dispatch_any(x.dtype(), [&](auto scalar) {
    elements.bytes = reinterpret_cast<std::byte*>(x.mutable_data<decltype(scalar)>());
  });
  return elements;
}

void check_own_part(const Tensor& own, const Tensor& values, int size, const char* operation) {
  check(own.dtype() == values.dtype() && own.numel() * size == values.numel(), operation,
        ": values must be ", size, " parts like own; got ", values.numel(), " elements of ",
        values.dtype(), " and ", own.numel(), " of ", own.dtype());
}

}  // namespace xtrain
