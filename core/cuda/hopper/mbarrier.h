#pragma once
// Barriers in shared memory that count arrivals and bytes (mbarrier of sm_90): how the copy engine
// tells that a tile has landed, and how those who read it tell that it may be overwritten.
//
// A barrier is in phase 0, 1, 2, ...; its phase ends when as many arrivals as `arrivals` of init
// have come and all bytes that were announced have landed. Then the next phase begins by itself,
// with the same count. wait(parity) returns when the phase of that parity (its lowest bit) has
// ended. On a new barrier, whose phase 0 runs, wait(0) waits, and wait(1) returns at once since the
// phase before the first counts as ended.
//
// A ring of stages uses that. Both sides count the tiles; tile `count` lies in stage count %
// kStages, for the (count / kStages)-th time. Readers wait for parity count / kStages % 2 of
// `full`. The writer waits for the opposite parity of `empty`: in the first round that is the phase
// that counts as ended, later the one in which the readers gave the stage back.

#include <cuda_runtime.h>

#include <cstdint>

#if defined(__CUDACC__)

namespace xtrain {

// By its address in shared memory, where it takes kBytes at a multiple of 8.
class Mbarrier {
 public:
  static constexpr int kBytes = 8;

  __device__ explicit Mbarrier(uint32_t address) : address_(address) {}

  // By one thread; others see it after mbarrier_init_done() and a barrier of the block.
  __device__ void init(int arrivals) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address_), "r"(arrivals)
                 : "memory");
  }
  __device__ void arrive() const {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address_) : "memory");
  }
  // One arrival that announces bytes. The copies that bring them may begin before or after.
  __device__ void arrive_expecting(int bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_),
                 "r"(bytes)
                 : "memory");
  }
  __device__ void wait(uint32_t parity) const {
    while (!has_ended(parity)) {
    }
  }
  __device__ uint32_t address() const { return address_; }

 private:
  // Sleeps for a while before it says no.
  __device__ bool has_ended(uint32_t parity) const {
    uint32_t ended;
    asm volatile(
        "{\n.reg .pred ended;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
        "selp.b32 %0, 1, 0, ended;\n}"
        : "=r"(ended)
        : "r"(address_), "r"(parity)
        : "memory");
    return ended != 0;
  }

  uint32_t address_;
};

// Makes initialised barriers visible to the copy engine.
__device__ inline void mbarrier_init_done() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// The two barriers of each stage of a ring.
template <int kStages>
class StageRing {
 public:
  static constexpr int kBytes = 2 * kStages * Mbarrier::kBytes;

  __device__ explicit StageRing(uint32_t address) : address_(address) {}

  // By one thread. A stage is full after one arrival and the bytes it announces, and empty after
  // `readers` arrivals.
  __device__ void init(int readers) const {
    for (int stage = 0; stage < kStages; ++stage) {
      full(stage).init(1);
      empty(stage).init(readers);
    }
  }
  __device__ static int stage_of(uint32_t count) { return static_cast<int>(count % kStages); }
  __device__ Mbarrier full(uint32_t count) const { return barrier(2 * stage_of(count)); }
  __device__ Mbarrier empty(uint32_t count) const { return barrier(2 * stage_of(count) + 1); }
  __device__ void wait_full(uint32_t count) const { full(count).wait((count / kStages) & 1); }
  __device__ void wait_empty(uint32_t count) const { empty(count).wait((count / kStages + 1) & 1); }

 private:
  __device__ Mbarrier barrier(int index) const {
    return Mbarrier(address_ + index * Mbarrier::kBytes);
  }

  uint32_t address_;
};

}  // namespace xtrain

#endif
