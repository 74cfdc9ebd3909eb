#pragma once
// Errors of the CUDA runtime and its libraries, with expression and place.

#include <cublas_v2.h>
#include <cuda_runtime.h>

namespace xtrain {

// Throws Error: "cudaMemcpy(...): invalid argument (core/cuda/x.cpp:12)".
[[noreturn]] void fail_cuda(const char* expression, const char* reason, const char* file, int line);

inline void check_cuda(cudaError_t status, const char* expression, const char* file, int line) {
  if (status != cudaSuccess) fail_cuda(expression, cudaGetErrorString(status), file, line);
}

inline void check_cuda(cublasStatus_t status, const char* expression, const char* file, int line) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    fail_cuda(expression, cublasGetStatusString(status), file, line);
  }
}

}  // namespace xtrain

// Every call of the runtime and of cuBLAS stands in this.
#define XT_CUDA(expression) ::xtrain::check_cuda((expression), #expression, __FILE__, __LINE__)
