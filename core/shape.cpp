#include "core/shape.h"

#include <algorithm>
#include <ostream>

#include "core/error.h"

namespace xtrain {

Dims::Dims(std::span<const int64_t> values) {
  for (int64_t value : values) push_back(value);
}

void Dims::push_back(int64_t value) {
  check(rank_ < kMaxRank, "tensor: rank must be at most ", kMaxRank, "; got more");
  values_[rank_++] = value;
}

bool Dims::operator==(const Dims& other) const {
  return std::equal(begin(), end(), other.begin(), other.end());
}

std::ostream& operator<<(std::ostream& out, const Dims& dims) {
  out << '(';
  for (int i = 0; i < dims.rank(); ++i) out << (i ? ", " : "") << dims[i];
  return out << ')';
}

int64_t numel_of(const Shape& shape) {
  int64_t n = 1;
  bool overflow = false;
  for (int64_t size : shape) {
    check(size >= 0, "tensor: sizes must not be negative; got ", shape);
    overflow |= __builtin_mul_overflow(n, size, &n);
  }
  const bool has_zero = std::find(shape.begin(), shape.end(), 0) != shape.end();
  check(has_zero || !overflow, "tensor: the number of elements must fit 63 bits; got ", shape);
  return has_zero ? 0 : n;
}

Strides contiguous_strides(const Shape& shape) {
  Strides strides = shape;
  int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

int normalize_dim(int dim, int rank) {
  check(dim >= -rank && dim < rank, "tensor: dimension must be in [", -rank, ", ", rank, "); got ",
        dim);
  return dim < 0 ? dim + rank : dim;
}

Shape broadcast_shape(const Shape& a, const Shape& b, const char* op) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  Shape result = longer;
  const int lead = longer.rank() - shorter.rank();
  for (int i = 0; i < shorter.rank(); ++i) {
    const int64_t x = longer[lead + i], y = shorter[i];
    check(x == y || x == 1 || y == 1, op, ": shapes must be equal or repeat along sizes of 1; got ",
          a, " and ", b);
    result[lead + i] = x == 1 ? y : x;
  }
  return result;
}

}  // namespace xtrain
