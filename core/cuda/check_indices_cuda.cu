#include "core/check_indices_kernels.h"
#include "core/cuda/launch.h"

namespace xtrain {
namespace {

constexpr int kThreads = 256;

__global__ void report_illegal_indices(IndexRule rule, int64_t n, const int32_t* ids,
                                       FaultSlot fault) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += stride) {
    if (!rule.allows(ids[i])) fault.report(rule, i, ids[i]);
  }
}

}  // namespace

void check_index_range(const Cuda& cuda, const IndexRule& rule, int64_t n, const int32_t* ids) {
  XT_LAUNCH(cuda, (LaunchShape{grid_for(n, kThreads), kThreads}), report_illegal_indices, rule, n,
            ids, queue_of(cuda).fault_slot());
}

}  // namespace xtrain
