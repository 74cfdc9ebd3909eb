#include "core/tensor.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "core/copy.h"
#include "core/error.h"

namespace xtrain {

Storage::Storage(std::shared_ptr<Allocator> allocator, Device device, int64_t bytes)
    : allocator_(std::move(allocator)),
      device_(device),
      size_(bytes),
      bytes_(static_cast<std::byte*>(allocator_->allocate(bytes))) {}

Storage::~Storage() {
  allocator_->free(bytes_, size_);
}

Tensor::Tensor(std::shared_ptr<Storage> storage, Dtype dtype, Shape shape, Strides strides,
               int64_t offset)
    : storage_(std::move(storage)),
      dtype_(dtype),
      shape_(shape),
      strides_(strides),
      offset_(offset),
      numel_(numel_of(shape)) {}

bool Tensor::is_contiguous() const {
  if (numel_ == 0) return true;
  int64_t expected = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (shape_[i] == 1) continue;
    if (strides_[i] != expected) return false;
    expected *= shape_[i];
  }
  return true;
}

void Tensor::check_dtype(Dtype wanted) const {
  check(defined(), "tensor: must hold storage to be read or written; got an undefined tensor");
  check(wanted == dtype_, "tensor: read or written as ", wanted, " but its dtype is ", dtype_);
}

// Strides of a view of the same elements in the same order with another shape, if there is one.
// Neighbouring dimensions form a chunk while one's stride spans the next; each new size must lie
// within one chunk.
static std::optional<Strides> reshaped_strides(const Tensor& x, const Shape& shape) {
  if (x.numel() == 0 || x.is_contiguous()) return contiguous_strides(shape);
  Strides strides = shape;
  int target = shape.rank() - 1;
  int64_t chunk = 1, stride = 0;
  for (int i = x.rank() - 1; i >= 0; --i) {
    if (x.shape()[i] == 1) continue;
    if (chunk == 1) stride = x.strides()[i];
    chunk *= x.shape()[i];
    int next = i - 1;
    while (next >= 0 && x.shape()[next] == 1) --next;
    const bool joins = next >= 0 && x.strides()[next] == x.shape()[i] * x.strides()[i];
    if (joins) continue;
    for (; target >= 0 && (chunk > 1 || shape[target] == 1); --target) {
      if (chunk % std::max<int64_t>(shape[target], 1) != 0) return std::nullopt;
      strides[target] = stride;
      stride *= shape[target];
      chunk /= shape[target];
    }
    if (chunk != 1) return std::nullopt;
  }
  for (; target >= 0; --target) strides[target] = 1;  // leading sizes of 1
  return strides;
}

bool Tensor::can_reshape(const Shape& shape) const {
  return numel_of(shape) == numel_ && reshaped_strides(*this, shape).has_value();
}

Tensor Tensor::reshape(const Shape& shape) const {
  check(numel_of(shape) == numel_, "reshape: the number of elements must stay; got ", shape_,
        " to ", shape);
  const auto strides = reshaped_strides(*this, shape);
  check(strides.has_value(), "reshape: ", shape_, " with strides ", strides_,
        " cannot be viewed as ", shape, "; make it contiguous first");
  return Tensor(storage_, dtype_, shape, *strides, offset_);
}

Tensor Tensor::transpose(int dim0, int dim1) const {
  const int i = normalize_dim(dim0, rank()), j = normalize_dim(dim1, rank());
  Tensor result = *this;
  std::swap(result.shape_[i], result.shape_[j]);
  std::swap(result.strides_[i], result.strides_[j]);
  return result;
}

Tensor Tensor::permute(std::span<const int> order) const {
  check(static_cast<int>(order.size()) == rank(),
        "permute: one entry a dimension must be given; got ", order.size(), " for shape ", shape_);
  Tensor result = *this;
  unsigned seen = 0;
  for (int i = 0; i < rank(); ++i) {
    const int from = normalize_dim(order[i], rank());
    seen |= 1u << from;
    result.shape_[i] = shape_[from];
    result.strides_[i] = strides_[from];
  }
  check(seen == (1u << rank()) - 1, "permute: each dimension must be named once, shape ", shape_);
  return result;
}

Tensor Tensor::slice(int dim, int64_t start, int64_t length) const {
  const int i = normalize_dim(dim, rank());
  check(start >= 0 && length >= 0 && start <= shape_[i] - length, "slice: [", start, ", ", start,
        " + ", length, ") must lie within size ", shape_[i], " of dimension ", i, " of ", shape_);
  Tensor result = *this;
  result.shape_[i] = length;
  result.numel_ = numel_of(result.shape_);
  if (result.numel_ > 0) result.offset_ += start * strides_[i];
  return result;
}

Tensor Tensor::with_rows_behind(int64_t rows) const {
  check(rank() > 0 && is_contiguous(),
        "with_rows_behind: a contiguous tensor with rows must be given; got ", shape_);
  check(rows >= 0, "with_rows_behind: rows must be 0 or more; got ", rows);
  Shape shape = shape_;
  shape[0] += rows;
  // Its own strides may be any where it has one row.
  Tensor result(storage_, dtype_, shape, contiguous_strides(shape), offset_);
  check((offset_ + result.numel()) * size_of(dtype_) <= storage_->size(),
        "with_rows_behind: ", rows, " rows must lie behind ", shape_, " in its storage; it has ",
        storage_->size(), " bytes");
  return result;
}

Tensor Tensor::expand(const Shape& shape) const {
  const int lead = shape.rank() - rank();
  Strides strides = shape;
  for (int i = 0; i < shape.rank(); ++i) {
    const bool repeated = i < lead || (shape_[i - lead] == 1 && shape[i] != 1);
    check(repeated || shape_[i - lead] == shape[i], "expand: ", shape_, " cannot repeat into ",
          shape);
    strides[i] = repeated ? 0 : strides_[i - lead];
  }
  check(lead >= 0, "expand: the rank must not shrink; got ", shape_, " to ", shape);
  return Tensor(storage_, dtype_, shape, strides, offset_);
}

Tensor empty(const Context& ctx, const Shape& shape, Dtype dtype) {
  int64_t bytes = 0;
  check(!__builtin_mul_overflow(numel_of(shape), size_of(dtype), &bytes),
        "tensor: the number of bytes must fit 63 bits; got shape ", shape);
  auto storage = std::make_shared<Storage>(ctx.allocator, ctx.device, bytes);
  return Tensor(std::move(storage), dtype, shape, contiguous_strides(shape), 0);
}

template <class T>
Tensor from_host(const Context& ctx, std::span<const T> values, const Shape& shape) {
  check(static_cast<int64_t>(values.size()) == numel_of(shape), "from_host: ", values.size(),
        " values do not fill shape ", shape);
  Tensor result = empty(ctx, shape, dtype_of<T>);
  copy_from_host(ctx, std::as_bytes(values), result);
  return result;
}

template <class T>
std::vector<T> to_host(const Context& ctx, const Tensor& x) {
  std::vector<T> values(x.numel());
  const Tensor source = contiguous(ctx, x);
  source.data<T>();  // the dtype must be T even when nothing is copied
  copy_to_host(ctx, source, std::as_writable_bytes(std::span(values)));
  return values;
}

#define XT_HOST_COPIES(T)                                                         \
  template Tensor from_host<T>(const Context&, std::span<const T>, const Shape&); \
  template std::vector<T> to_host<T>(const Context&, const Tensor&);
XT_HOST_COPIES(double)
XT_HOST_COPIES(float)
XT_HOST_COPIES(BFloat16)
XT_HOST_COPIES(int32_t)
XT_HOST_COPIES(int64_t)
#undef XT_HOST_COPIES

}  // namespace xtrain
