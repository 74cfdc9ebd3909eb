#pragma once
// Where the instructions of this folder exist: on GPUs of compute capability 9.0 alone, in code
// that was compiled for sm_90a.

#include "core/cuda/queue_cuda.h"

namespace xtrain {

inline bool has_wgmma(const Cuda& cuda) {
  return runs_sm90a(cuda);
}

}  // namespace xtrain

// Bodies of kernels that use them stand in #if XT_SM90A, since a build may be for further
// architectures; there they are empty, and nobody launches them.
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define XT_SM90A 1
#else
#define XT_SM90A 0
#endif
