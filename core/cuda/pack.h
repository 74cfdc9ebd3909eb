#pragma once
// Memory access 16 bytes at a time: one load or store of a thread.

#include <cuda_runtime.h>

#include <cstdint>

#include "core/dtype.h"

namespace xtrain {

template <class T>
inline constexpr int kPackSize = 16 / static_cast<int>(sizeof(T));

template <class T>
struct alignas(16) Pack {
  T value[kPackSize<T>];
};

// `address` must be a multiple of 16 bytes.
template <class T>
__device__ Pack<T> load_pack(const T* address) {
  Pack<T> pack;
  *reinterpret_cast<uint4*>(&pack) = *reinterpret_cast<const uint4*>(address);
  return pack;
}

// Of what the kernel does not write, which compilers may then read ahead of its stores.
template <class T>
__device__ Pack<T> load_pack_constant(const T* address) {
  Pack<T> pack;
  *reinterpret_cast<uint4*>(&pack) = __ldg(reinterpret_cast<const uint4*>(address));
  return pack;
}

// For what is read once: leaves the caches to others.
template <class T>
__device__ Pack<T> load_pack_streaming(const T* address) {
  Pack<T> pack;
  *reinterpret_cast<uint4*>(&pack) = __ldcs(reinterpret_cast<const uint4*>(address));
  return pack;
}

// From the L2 cache, which all multiprocessors share: of what another kernel wrote while this one
// ran.
template <class T>
__device__ Pack<T> load_pack_l2(const T* address) {
  Pack<T> pack;
  *reinterpret_cast<uint4*>(&pack) = __ldcg(reinterpret_cast<const uint4*>(address));
  return pack;
}

// By the intrinsic, since the compiler may cut a plain assignment into four stores.
template <class T>
__device__ void store_pack(T* address, const Pack<T>& pack) {
  __stwb(reinterpret_cast<uint4*>(address), *reinterpret_cast<const uint4*>(&pack));
}

// Neighbouring elements in registers, in the type that they are computed with.
template <class A, int kCount>
struct Elements {
  A at[kCount];
};
// Those of a pack.
template <class T>
using Values = Elements<Accumulator<T>, kPackSize<T>>;

template <class T>
__device__ Values<T> values_of(const Pack<T>& pack) {
  Values<T> values;
#pragma unroll
  for (int i = 0; i < kPackSize<T>; ++i) values.at[i] = static_cast<Accumulator<T>>(pack.value[i]);
  return values;
}

template <class T>
__device__ Pack<T> pack_of(const Values<T>& values) {
  Pack<T> pack;
#pragma unroll
  for (int i = 0; i < kPackSize<T>; ++i) pack.value[i] = static_cast<T>(values.at[i]);
  return pack;
}

// bf16 goes by pairs: the upper half of a word is an f32 as it stands, and one instruction rounds
// two values to nearest even, `low` to the lower half.
__device__ inline uint32_t pack_bf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
__device__ inline float low_bf16(uint32_t packed) {
  return __uint_as_float(packed << 16);
}
__device__ inline float high_bf16(uint32_t packed) {
  return __uint_as_float(packed & 0xffff0000u);
}

template <>
__device__ inline Values<BFloat16> values_of(const Pack<BFloat16>& pack) {
  Values<BFloat16> values;
  const uint4 words = *reinterpret_cast<const uint4*>(&pack);
  const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values.at[2 * i] = low_bf16(word[i]);
    values.at[2 * i + 1] = high_bf16(word[i]);
  }
  return values;
}
template <>
__device__ inline Pack<BFloat16> pack_of(const Values<BFloat16>& values) {
  uint32_t word[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) word[i] = pack_bf16(values.at[2 * i], values.at[2 * i + 1]);
  Pack<BFloat16> pack;
  *reinterpret_cast<uint4*>(&pack) = make_uint4(word[0], word[1], word[2], word[3]);
  return pack;
}

// kCount is 1 or a multiple of a pack; `x` must then lie at a multiple of 16 bytes.
template <int kCount, class T>
__device__ Elements<Accumulator<T>, kCount> load_elements(const T* x) {
  Elements<Accumulator<T>, kCount> elements;
  if constexpr (kCount == 1) {
    elements.at[0] = static_cast<Accumulator<T>>(*x);
  } else {
    static_assert(kCount % kPackSize<T> == 0);
#pragma unroll
    for (int i = 0; i < kCount; i += kPackSize<T>) {
      const Values<T> values = values_of(load_pack(x + i));
#pragma unroll
      for (int j = 0; j < kPackSize<T>; ++j) elements.at[i + j] = values.at[j];
    }
  }
  return elements;
}

template <class T, int kCount>
__device__ void store_elements(T* y, const Elements<Accumulator<T>, kCount>& elements) {
  if constexpr (kCount == 1) {
    *y = static_cast<T>(elements.at[0]);
  } else {
    static_assert(kCount % kPackSize<T> == 0);
#pragma unroll
    for (int i = 0; i < kCount; i += kPackSize<T>) {
      Values<T> values;
#pragma unroll
      for (int j = 0; j < kPackSize<T>; ++j) values.at[j] = elements.at[i + j];
      store_pack(y + i, pack_of<T>(values));
    }
  }
}

// Whether every row of `width` elements, the first at `address`, begins at a multiple of 16 bytes
// and is whole packs. Null addresses fit.
template <class T>
bool fits_packs(int64_t width, const T* address) {
  return width % kPackSize<T> == 0 && reinterpret_cast<uintptr_t>(address) % 16 == 0;
}
template <class T, class... Rest>
bool fits_packs(int64_t width, const T* address, const Rest*... rest) {
  return fits_packs(width, address) && (fits_packs(width, rest) && ...);
}

}  // namespace xtrain
