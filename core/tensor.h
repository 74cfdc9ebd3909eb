#pragma once
// A strided view of counted storage. Copying a Tensor copies the view, never the elements.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/context.h"
#include "core/dtype.h"
#include "core/shape.h"

namespace xtrain {

// One block of device memory, shared by all views of it.
class Storage {
 public:
  Storage(std::shared_ptr<Allocator> allocator, Device device, int64_t bytes);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::byte* bytes() const { return bytes_; }
  int64_t size() const { return size_; }
  Device device() const { return device_; }

  // Counts writes, so that a tensor kept for backward can tell that it was changed since.
  uint64_t version = 0;

 private:
  std::shared_ptr<Allocator> allocator_;
  Device device_;
  int64_t size_;
  std::byte* bytes_;
};

class Tensor {
 public:
  Tensor() = default;  // no storage: defined() is false
  Tensor(std::shared_ptr<Storage> storage, Dtype dtype, Shape shape, Strides strides,
         int64_t offset);

  bool defined() const { return storage_ != nullptr; }
  Dtype dtype() const { return dtype_; }
  Device device() const { return storage_->device(); }
  const Shape& shape() const { return shape_; }
  const Strides& strides() const { return strides_; }
  int rank() const { return shape_.rank(); }
  int64_t size(int dim) const { return shape_[normalize_dim(dim, rank())]; }
  int64_t stride(int dim) const { return strides_[normalize_dim(dim, rank())]; }
  int64_t numel() const { return numel_; }
  int64_t nbytes() const { return numel_ * size_of(dtype_); }
  bool is_contiguous() const;  // row-major without gaps; sizes of 0 and 1 may have any stride
  bool is_aligned(int64_t bytes) const {  // whether the first element's address is a multiple
    return reinterpret_cast<uintptr_t>(address()) % bytes == 0;
  }

  // First element of the view. Error when T is not the tensor's dtype. mutable_data counts as a
  // write to the storage: tensors kept for backward notice it.
  template <class T>
  const T* data() const {
    check_dtype(dtype_of<T>);
    return static_cast<const T*>(address());
  }
  template <class T>
  T* mutable_data() {
    check_dtype(dtype_of<T>);
    ++storage_->version;
    return static_cast<T*>(address());
  }

  // Views; none of them copies.
  Tensor reshape(const Shape& shape) const;    // Error when the strides do not allow it
  bool can_reshape(const Shape& shape) const;  // same number of elements, no copy needed
  Tensor transpose(int dim0, int dim1) const;
  Tensor permute(std::span<const int> order) const;  // dimension i of the result is order[i]
  Tensor slice(int dim, int64_t start, int64_t length) const;
  Tensor expand(const Shape& shape) const;  // repeats sizes of 1 by stride 0
  // The same rows and so many of those that lie behind them in the storage. Error unless the tensor
  // is contiguous and the storage reaches so far.
  Tensor with_rows_behind(int64_t rows) const;

  // Whether no other tensor, views included, holds this storage.
  bool is_sole_holder() const { return storage_.use_count() == 1; }
  bool shares_storage(const Tensor& other) const { return storage_ == other.storage_; }
  uint64_t version() const { return storage_->version; }
  int64_t storage_bytes() const { return storage_->size(); }

 private:
  void check_dtype(Dtype wanted) const;
  void* address() const { return storage_->bytes() + offset_ * size_of(dtype_); }

  std::shared_ptr<Storage> storage_;
  Dtype dtype_ = Dtype::f32;
  Shape shape_;
  Strides strides_;
  int64_t offset_ = 0;  // in elements
  int64_t numel_ = 0;
};

// A contiguous tensor on the context's device, elements undefined.
Tensor empty(const Context& ctx, const Shape& shape, Dtype dtype);
inline Tensor empty_like(const Context& ctx, const Tensor& x) {
  return empty(ctx, x.shape(), x.dtype());
}

// A contiguous tensor with the given elements in row-major order; Error when the count is not the
// shape's.
template <class T>
Tensor from_host(const Context& ctx, std::span<const T> values, const Shape& shape);
template <class T>
Tensor from_host(const Context& ctx, const std::vector<T>& values, const Shape& shape) {
  return from_host(ctx, std::span<const T>(values), shape);
}

// The elements in row-major order, whatever the strides. Error when T is not the dtype.
template <class T>
std::vector<T> to_host(const Context& ctx, const Tensor& x);

}  // namespace xtrain
