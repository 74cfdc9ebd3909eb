#pragma once
// The bulk copy engine (TMA of sm_90): one thread asks for a whole tile, and the engine computes
// the addresses, swizzles, fills with zeros what lies outside of the tensor and reports to an
// mbarrier.
//
// The engine and wgmma reach shared memory on another path (the async proxy) than ordinary loads
// and stores. What threads have written becomes visible to it when each writing thread runs
// async_fence() before the barrier behind which one thread starts the engine or the product. What
// the engine has written is visible to everybody who waited for its mbarrier.

#include "core/cuda/hopper/tensor_map.h"

#if defined(__CUDACC__)

#include "core/cuda/hopper/mbarrier.h"

namespace xtrain {

__device__ inline void async_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Fetches the map itself, which lies among the arguments of the kernel.
__device__ inline void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Rows time .. of one head into shared memory at a multiple of 1024, in the layout of SwizzledTile.
// Rows outside of the tensor arrive as zeros; the barrier always counts the bytes of a whole tile.
__device__ inline void load_tile(uint32_t to, const CUtensorMap& map, int batch, int head, int time,
                                 const Mbarrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %2, %4, %5}], [%6];" ::"r"(to),
      "l"(&map), "r"(0), "r"(time), "r"(head), "r"(batch), "r"(barrier.address())
      : "memory");
}

// The same the other way; rows behind the tensor's last are not written, but `time` must not be
// negative. Belongs to the thread's group that store_commit() closes.
__device__ inline void store_tile(const CUtensorMap& map, int batch, int head, int time,
                                  uint32_t from) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group "
      "[%0, {%2, %3, %2, %4, %5}], [%1];" ::"l"(&map),
      "r"(from), "r"(0), "r"(time), "r"(head), "r"(batch)
      : "memory");
}
__device__ inline void store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Returns when the stores of this thread have read shared memory; global memory may lag behind.
__device__ inline void store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// Bytes that lie side by side, a multiple of 16, between multiples of 16.
__device__ inline void load_bytes(uint32_t to, const void* from, int bytes,
                                  const Mbarrier& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier.address())
      : "memory");
}

}  // namespace xtrain

#endif
