#pragma once
// From a tensor's device and dtype to a kernel.
//
//   dispatch(ctx, x, "gelu", [&](auto device, auto scalar) {
//     using T = decltype(scalar);
//     gelu_forward(device, x.data<T>(), y.mutable_data<T>(), x.numel());
//   });
//
// Kernels are overloads on the device handle, templated on the scalar. What is not supported is an
// error that names what is.

#include "core/context.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/tensor.h"

namespace xtrain {

// Names the CPU overload of a kernel and carries what it needs.
struct Cpu {
  const Context& ctx;
  int threads() const { return ctx.threads; }
};

// Names the CUDA overload of a kernel. Where these are built, core/cuda/queue_cuda.h says what lies
// behind the context.
struct Cuda {
  const Context& ctx;
};

inline constexpr bool kCudaBuilt = XT_CUDA_BUILT;

// Calls f(T{}) with the floating scalar of the dtype.
template <class F>
void dispatch_floating(Dtype dtype, const char* op, F&& f) {
  switch (dtype) {
    case Dtype::f64:
      return f(double{});
    case Dtype::f32:
      return f(float{});
    case Dtype::bf16:
      return f(BFloat16{});
    default:
      fail(op, ": dtype must be f64, f32 or bf16; got ", dtype);
  }
}

// Calls f(device) with the handle of the context's device, on which x must lie.
template <class F>
void dispatch_device(const Context& ctx, const Tensor& x, const char* op, F&& f) {
  check(x.defined(), op, ": a tensor must be given; got an undefined one");
  check(x.device() == ctx.device, op, ": tensor must lie on the context's device ", ctx.device,
        "; got ", x.device());
  if (!ctx.computes) return;
  if constexpr (kCudaBuilt) {
    if (ctx.device.is_cuda()) return f(Cuda{ctx});
  }
  f(Cpu{ctx});
}

// Calls f(device, T{}) with the device handle and the floating scalar of x.
template <class F>
void dispatch(const Context& ctx, const Tensor& x, const char* op, F&& f) {
  dispatch_device(ctx, x, op, [&](auto device) {
    dispatch_floating(x.dtype(), op, [&](auto scalar) { f(device, scalar); });
  });
}

}  // namespace xtrain
