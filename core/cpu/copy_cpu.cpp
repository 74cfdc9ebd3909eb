#include <bit>
#include <cmath>
#include <cstring>

#include "core/copy.h"
#include "core/cpu/strided.h"

namespace xtrain {
namespace {

// Calls f(T{}) with the scalar of any dtype.
template <class F>
void dispatch_any(Dtype dtype, F&& f) {
  switch (dtype) {
    case Dtype::f64:
      return f(double{});
    case Dtype::f32:
      return f(float{});
    case Dtype::bf16:
      return f(BFloat16{});
    case Dtype::i32:
      return f(int32_t{});
    case Dtype::i64:
      return f(int64_t{});
  }
}

void check_same_shape(const Tensor& source, const Tensor& target, const char* op) {
  check(source.shape() == target.shape(), op, ": shapes must agree; got ", source.shape(), " to ",
        target.shape());
}

// Through f32 a value would round twice. Rounding to f32 "to odd" (what is cut off sets the last
// bit) leaves enough to tell on which side of a tie it lies.
BFloat16 round_to_bf16(double x) {
  const float nearest = static_cast<float>(x);
  const double error = x - static_cast<double>(nearest);
  if (error == 0.0 || error != error) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (std::abs(static_cast<double>(nearest)) > std::abs(x)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

template <class To, class From>
To convert(From x) {
  if constexpr (std::is_same_v<To, BFloat16> && !std::is_same_v<From, BFloat16> &&
                !std::is_same_v<From, float>) {
    return round_to_bf16(static_cast<double>(x));
  } else {
    return static_cast<To>(x);
  }
}

template <class From, class To>
void copy_row(const From* source, int64_t source_stride, To* target, int64_t target_stride,
              int64_t length) {
  if (source_stride == 1 && target_stride == 1) {
    if constexpr (std::is_same_v<From, To>) {
      std::memcpy(target, source, length * sizeof(To));
      return;
    }
    for (int64_t i = 0; i < length; ++i) target[i] = convert<To>(source[i]);
    return;
  }
  for (int64_t i = 0; i < length; ++i) {
    target[i * target_stride] = convert<To>(source[i * source_stride]);
  }
}

// The type in which From is added to To.
template <class From, class To>
using Wider =
    std::conditional_t<std::is_same_v<From, double> || std::is_same_v<To, double>, double, float>;

}  // namespace

void copy(const Context& ctx, const Tensor& source, Tensor target) {
  check_same_shape(source, target, "copy");
  const StridedLoop<2> loop(source.shape(), {source.strides(), target.strides()});
  dispatch_any(source.dtype(), [&](auto from) {
    dispatch_any(target.dtype(), [&](auto to) {
      const auto* x = source.data<decltype(from)>();
      auto* y = target.mutable_data<decltype(to)>();
      parallel_strided(Cpu{ctx}, loop, [&](const auto& at, int64_t length) {
        copy_row(x + at[0], loop.row_stride(0), y + at[1], loop.row_stride(1), length);
      });
    });
  });
}

void add_into(const Context& ctx, const Tensor& source, Tensor target) {
  check_same_shape(source, target, "add_into");
  const StridedLoop<2> loop(source.shape(), {source.strides(), target.strides()});
  dispatch_floating(source.dtype(), "add_into", [&](auto from) {
    dispatch_floating(target.dtype(), "add_into", [&](auto to) {
      using To = decltype(to);
      using Sum = Wider<decltype(from), To>;
      const auto* x = source.data<decltype(from)>();
      auto* y = target.mutable_data<To>();
      parallel_strided(Cpu{ctx}, loop, [&](const auto& at, int64_t length) {
        const auto* xi = x + at[0];
        To* yi = y + at[1];
        const int64_t sx = loop.row_stride(0), sy = loop.row_stride(1);
        for (int64_t i = 0; i < length; ++i) {
          yi[i * sy] = convert<To>(static_cast<Sum>(yi[i * sy]) + static_cast<Sum>(xi[i * sx]));
        }
      });
    });
  });
}

void fill(const Context& ctx, Tensor target, double value) {
  const StridedLoop<1> loop(target.shape(), {target.strides()});
  dispatch_any(target.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    T* y = target.mutable_data<T>();
    const T v = convert<T>(value);
    parallel_strided(Cpu{ctx}, loop, [&](const auto& at, int64_t length) {
      for (int64_t i = 0; i < length; ++i) y[at[0] + i * loop.row_stride(0)] = v;
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

void copy_from_host(const Context&, std::span<const std::byte> source, Tensor target) {
  check(target.is_contiguous() && static_cast<int64_t>(source.size()) == target.nbytes(),
        "copy_from_host: ", source.size(), " bytes do not fill contiguous shape ", target.shape());
  if (source.empty()) return;
  dispatch_any(target.dtype(), [&](auto scalar) {
    std::memcpy(target.mutable_data<decltype(scalar)>(), source.data(), source.size());
  });
}

void copy_to_host(const Context&, const Tensor& source, std::span<std::byte> target) {
  check(source.is_contiguous() && static_cast<int64_t>(target.size()) == source.nbytes(),
        "copy_to_host: ", target.size(), " bytes do not hold contiguous shape ", source.shape());
  if (target.empty()) return;
  dispatch_any(source.dtype(), [&](auto scalar) {
    std::memcpy(target.data(), source.data<decltype(scalar)>(), target.size());
  });
}

}  // namespace xtrain
