#pragma once
// A stream of one GPU with the library handles that work on it, made once and kept.

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <memory>

#include "core/cuda/fault.h"
#include "core/cuda/tickets.h"
#include "core/dispatch.h"
#include "core/queue.h"

namespace xtrain {

struct GpuProperties {
  int multiprocessors = 0;
  int64_t shared_bytes_per_block = 0;  // the most that a kernel may ask for
  int compute_capability = 0;          // 90 for 9.0
};

class CublasLtPlans;

class CudaQueue final : public Queue {
 public:
  // With wait_after_launch every launch is waited for, so that an error names its own kernel.
  CudaQueue(int device, const CudaOptions& options);
  ~CudaQueue() override;
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  void copy_in(const void* host, void* device, int64_t bytes) override;
  void copy_out(const void* device, void* host, int64_t bytes) override;
  std::unique_ptr<Event> record() override;
  std::unique_ptr<RecordedWork> record_work(const std::function<void()>& work) override;
  bool records() const override { return !wait_after_launch_; }
  void synchronize() override;

  cudaStream_t stream() const { return stream_; }
  const GpuProperties& gpu() const { return gpu_; }
  FaultSlot fault_slot() const { return fault_; }
  Tickets tickets() const { return tickets_; }
  void throw_fault();  // Error if a kernel that is done has met a fault
  bool waits_after_launch() const { return wait_after_launch_; }

  // Handles on the stream; both share the workspace: none of their kernels is launched early, so
  // the stream runs one of them at a time.
  cublasHandle_t cublas() const { return cublas_; }
  cublasLtHandle_t cublas_lt() const { return cublas_lt_; }
  void* workspace() const { return workspace_; }
  CublasLtPlans& cublas_lt_plans() const { return *cublas_lt_plans_; }  // core/cuda/gemm_cublaslt.h
  static constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;

 private:
  int device_;
  bool wait_after_launch_;
  bool recording_ = false;
  GpuProperties gpu_;
  cudaStream_t stream_ = nullptr;
  cublasHandle_t cublas_ = nullptr;
  cublasLtHandle_t cublas_lt_ = nullptr;
  void* workspace_ = nullptr;
  std::unique_ptr<CublasLtPlans> cublas_lt_plans_;
  FaultSlot fault_;
  Tickets tickets_;
};

inline CudaQueue& queue_of(const Cuda& cuda) {
  return static_cast<CudaQueue&>(*cuda.ctx.queue);
}
inline cudaStream_t stream_of(const Cuda& cuda) {
  return queue_of(cuda).stream();
}
inline const GpuProperties& gpu_of(const Cuda& cuda) {
  return queue_of(cuda).gpu();
}
// Whether this GPU runs what was compiled for sm_90a: a build for older ones has other code for it.
inline bool runs_sm90a(const Cuda& cuda) {
  return XT_WGMMA_BUILT && gpu_of(cuda).compute_capability == 90;
}

}  // namespace xtrain
