#pragma once
// Shared memory by its own 32-bit addresses, 16 bytes at a time; all addresses are multiples of 16.

#include <cuda_runtime.h>

#include <cstdint>

#if defined(__CUDACC__)

namespace xtrain {

__device__ inline uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

__device__ inline uint4 load_shared(uint32_t from) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(from));
  return v;
}
__device__ inline void store_shared(uint32_t to, const uint4& v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}

// Copies from global to shared memory while the thread does other work, until copy_async_wait of
// the same thread.
__device__ inline void copy_async(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// Zeros, and nothing is read, where `present` is false.
__device__ inline void copy_async(uint32_t to, const void* from, bool present) {
  const int bytes = present ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
// The same told as a predicate, which the assembler schedules in another way.
__device__ inline void copy_async_predicated(uint32_t to, const void* from, bool present) {
  asm volatile(
      "{ .reg .pred absent; setp.eq.b32 absent, %2, 0;"
      " cp.async.cg.shared.global [%0], [%1], 16, absent; }" ::"r"(to),
      "l"(from), "r"(static_cast<int>(present))
      : "memory");
}
// Closes a group of copies.
__device__ inline void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Returns when at most the last `kGroups` committed groups of this thread are under way.
template <int kGroups>
__device__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

}  // namespace xtrain

#endif
