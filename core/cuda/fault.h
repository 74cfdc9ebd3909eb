#pragma once
// What a kernel reports when it meets an index that it must not follow. The first fault is kept and
// becomes an Error when the host next waits for the queue.

#include <cuda_runtime.h>

#include "core/check_indices_kernels.h"

namespace xtrain {

struct Fault {
  bool met = false;
  IndexRule rule;
  int64_t position = 0;
  int64_t id = 0;
};

// Where kernels write a fault: the record lies in host memory that the device sees.
struct FaultSlot {
  Fault* record = nullptr;
  unsigned* taken = nullptr;

#if defined(__CUDACC__)
  __device__ void report(const IndexRule& rule, int64_t position, int64_t id) const {
    if (atomicCAS(taken, 0u, 1u) != 0u) return;
    record->rule = rule;
    record->position = position;
    record->id = id;
    record->met = true;
    __threadfence_system();
  }
#endif
};

}  // namespace xtrain
