#pragma once
// A short list of 64-bit sizes or strides, held inline. Dimension arguments may be negative,
// counted from the end: -1 is the last.

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>

namespace xtrain {

class Dims {
 public:
  static constexpr int kMaxRank = 8;

  Dims() = default;
  Dims(std::initializer_list<int64_t> values) : Dims(std::span(values.begin(), values.size())) {}
  explicit Dims(std::span<const int64_t> values);

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return values_[i]; }
  int64_t& operator[](int i) { return values_[i]; }
  const int64_t* begin() const { return values_; }
  const int64_t* end() const { return values_ + rank_; }
  void push_back(int64_t value);

  bool operator==(const Dims& other) const;

 private:
  int64_t values_[kMaxRank] = {};
  int rank_ = 0;
};

using Shape = Dims;
using Strides = Dims;

std::ostream& operator<<(std::ostream& out, const Dims& dims);  // (4, 3)

int64_t numel_of(const Shape& shape);  // product of the sizes, 1 for rank 0; Error on overflow
Strides contiguous_strides(const Shape& shape);  // row-major
int normalize_dim(int dim, int rank);            // negative from the end; Error when out of range

// The shape both operands take when sizes of 1 (or missing leading ones) repeat; Error when they do
// not fit. `op` names the operation in the message.
Shape broadcast_shape(const Shape& a, const Shape& b, const char* op);

}  // namespace xtrain
