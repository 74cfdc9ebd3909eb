#include <cstring>

#include "core/convert.h"
#include "core/copy_kernels.h"
#include "core/cpu/strided.h"

namespace xtrain {
namespace {

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

}  // namespace

template <class From, class To>
void copy_elements(const Cpu& cpu, const Shape& shape, const From* source, const Strides& from,
                   To* target, const Strides& to) {
  const StridedLoop<2> loop(shape, {from, to});
  parallel_strided(cpu, loop, [&](const auto& at, int64_t length) {
    copy_row(source + at[0], loop.row_stride(0), target + at[1], loop.row_stride(1), length);
  });
}

template <class From, class To>
void add_elements(const Cpu& cpu, const Shape& shape, const From* source, const Strides& from,
                  To* target, const Strides& to) {
  const StridedLoop<2> loop(shape, {from, to});
  parallel_strided(cpu, loop, [&](const auto& at, int64_t length) {
    const From* x = source + at[0];
    To* y = target + at[1];
    const int64_t sx = loop.row_stride(0), sy = loop.row_stride(1);
    for (int64_t i = 0; i < length; ++i) y[i * sy] = add_converted(y[i * sy], x[i * sx]);
  });
}

template <class T>
void fill_elements(const Cpu& cpu, const Shape& shape, T value, T* target, const Strides& to) {
  const StridedLoop<1> loop(shape, {to});
  parallel_strided(cpu, loop, [&](const auto& at, int64_t length) {
    for (int64_t i = 0; i < length; ++i) target[at[0] + i * loop.row_stride(0)] = value;
  });
}

XT_COPY_KERNELS(Cpu);

}  // namespace xtrain
