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

// For what is read once: leaves the caches to others.
template <class T>
__device__ Pack<T> load_pack_streaming(const T* address) {
  Pack<T> pack;
  *reinterpret_cast<uint4*>(&pack) = __ldcs(reinterpret_cast<const uint4*>(address));
  return pack;
}

// By the intrinsic, since the compiler may cut a plain assignment into four stores.
template <class T>
__device__ void store_pack(T* address, const Pack<T>& pack) {
  __stwb(reinterpret_cast<uint4*>(address), *reinterpret_cast<const uint4*>(&pack));
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
