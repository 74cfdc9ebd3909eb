#include "core/copy.h"

#include "core/convert.h"
#include "core/copy_kernels.h"
#include "core/dispatch_any.h"
#include "core/error.h"

namespace xtrain {
namespace {

void check_same_shape(const Tensor& source, const Tensor& target, const char* op) {
  check(source.shape() == target.shape(), op, ": shapes must agree; got ", source.shape(), " to ",
        target.shape());
  check(source.device() == target.device(), op, ": tensors must lie on one device; got ",
        source.device(), " to ", target.device());
}

// The first byte of a contiguous tensor.
const void* bytes_of(const Tensor& x) {
  const void* bytes = nullptr;
  dispatch_any(x.dtype(), [&](auto scalar) { bytes = x.data<decltype(scalar)>(); });
  return bytes;
}
void* mutable_bytes_of(Tensor& x) {
  void* bytes = nullptr;
  dispatch_any(x.dtype(), [&](auto scalar) { bytes = x.mutable_data<decltype(scalar)>(); });
  return bytes;
}

void check_bytes(const char* op, size_t bytes, const Tensor& x) {
  check(x.is_contiguous() && static_cast<int64_t>(bytes) == x.nbytes(), op, ": ", bytes,
        " bytes must be those of a contiguous tensor; got shape ", x.shape(), " of ", x.dtype());
}

}  // namespace

void copy(const Context& ctx, const Tensor& source, Tensor target) {
  check_same_shape(source, target, "copy");
  dispatch_device(ctx, source, "copy", [&](auto device) {
    dispatch_any(source.dtype(), [&](auto from) {
      dispatch_any(target.dtype(), [&](auto to) {
        copy_elements(device, source.shape(), source.data<decltype(from)>(), source.strides(),
                      target.mutable_data<decltype(to)>(), target.strides());
      });
    });
  });
}

void add_into(const Context& ctx, const Tensor& source, Tensor target) {
  check_same_shape(source, target, "add_into");
  dispatch(ctx, source, "add_into", [&](auto device, auto from) {
    dispatch_floating(target.dtype(), "add_into", [&](auto to) {
      add_elements(device, source.shape(), source.data<decltype(from)>(), source.strides(),
                   target.mutable_data<decltype(to)>(), target.strides());
    });
  });
}

void fill(const Context& ctx, Tensor target, double value) {
  dispatch_device(ctx, target, "fill", [&](auto device) {
    dispatch_any(target.dtype(), [&](auto scalar) {
      using T = decltype(scalar);
      fill_elements(device, target.shape(), convert<T>(value), target.mutable_data<T>(),
                    target.strides());
    });
  });
}

Tensor contiguous(const Context& ctx, const Tensor& x) {
  if (x.is_contiguous()) return x;
  Tensor result = empty_like(ctx, x);
  copy(ctx, x, result);
  return result;
}

Tensor cast(const Context& ctx, const Tensor& x, Dtype dtype) {
  if (x.dtype() == dtype) return x;
  Tensor result = empty(ctx, x.shape(), dtype);
  copy(ctx, x, result);
  return result;
}

Tensor zeros(const Context& ctx, const Shape& shape, Dtype dtype) {
  Tensor result = empty(ctx, shape, dtype);
  fill(ctx, result, 0.0);
  return result;
}

void copy_from_host(const Context& ctx, std::span<const std::byte> source, Tensor target) {
  check_bytes("copy_from_host", source.size(), target);
  if (source.empty()) return;
  ctx.queue->copy_in(source.data(), mutable_bytes_of(target), static_cast<int64_t>(source.size()));
}

void copy_to_host(const Context& ctx, const Tensor& source, std::span<std::byte> target) {
  check_bytes("copy_to_host", target.size(), source);
  if (!target.empty()) {
    ctx.queue->copy_out(bytes_of(source), target.data(), static_cast<int64_t>(target.size()));
  }
  ctx.queue->synchronize();
}

Tensor host_tensor(const Context& ctx, const Shape& shape, Dtype dtype) {
  Context host = ctx;
  host.device = Device{};
  host.allocator = ctx.host_allocator;
  return empty(host, shape, dtype);
}

void upload(const Context& ctx, const Tensor& source, Tensor target) {
  check(source.dtype() == target.dtype() && source.shape() == target.shape(),
        "upload: shapes and dtypes must agree; got ", source.shape(), " ", source.dtype(), " to ",
        target.shape(), " ", target.dtype());
  check_bytes("upload", source.nbytes(), source);
  check_bytes("upload", source.nbytes(), target);
  if (source.numel() == 0) return;
  ctx.queue->copy_in(bytes_of(source), mutable_bytes_of(target), source.nbytes());
}

void download(const Context& ctx, const Tensor& source, Tensor target) {
  check(source.dtype() == target.dtype() && source.shape() == target.shape(),
        "download: shapes and dtypes must agree; got ", source.shape(), " ", source.dtype(), " to ",
        target.shape(), " ", target.dtype());
  check_bytes("download", source.nbytes(), source);
  check_bytes("download", source.nbytes(), target);
  if (source.numel() == 0) return;
  ctx.queue->copy_out(bytes_of(source), mutable_bytes_of(target), source.nbytes());
}

}  // namespace xtrain
