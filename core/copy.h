#pragma once
// Moving and combining elements, without gradients. Tensors may have any strides; the destination
// must not overlap itself. bf16 and f32 results round once, to nearest even.

#include <cstddef>
#include <span>

#include "core/tensor.h"

namespace xtrain {

// target = source, converting the dtype; shapes must agree.
void copy(const Context& ctx, const Tensor& source, Tensor target);

// target += source, added in the wider of the two types; shapes must agree.
void add_into(const Context& ctx, const Tensor& source, Tensor target);

// Every element of target = value.
void fill(const Context& ctx, Tensor target, double value);

// x itself when it is contiguous, else a contiguous copy.
Tensor contiguous(const Context& ctx, const Tensor& x);

// x itself when it has the dtype, else a converted contiguous copy.
Tensor cast(const Context& ctx, const Tensor& x, Dtype dtype);

Tensor zeros(const Context& ctx, const Shape& shape, Dtype dtype);

// Raw bytes between host memory and a contiguous tensor of that many bytes.
void copy_from_host(const Context& ctx, std::span<const std::byte> source, Tensor target);
void copy_to_host(const Context& ctx, const Tensor& source, std::span<std::byte> target);

// A contiguous tensor in host memory that copies from and to the device reach fastest.
Tensor host_tensor(const Context& ctx, const Shape& shape, Dtype dtype);

// Between a host tensor and a contiguous tensor of the device, of one shape and dtype, in the order
// of the context's queue: nothing waits, so the host tensor must be left alone until an event
// recorded behind the copy has passed.
void upload(const Context& ctx, const Tensor& source, Tensor target);
void download(const Context& ctx, const Tensor& source, Tensor target);

}  // namespace xtrain
