#include "core/cuda/queue_cuda.h"

#include "core/context.h"
#include "core/cuda/check.h"
#include "core/cuda/gemm_cublaslt.h"
#include "core/error.h"

namespace xtrain {
namespace {

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(CudaQueue& queue) : queue_(queue) {
    XT_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    XT_CUDA(cudaEventRecord(event_, queue.stream()));
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  void wait() override {
    XT_CUDA(cudaEventSynchronize(event_));
    queue_.throw_fault();
  }

 private:
  CudaQueue& queue_;
  cudaEvent_t event_ = nullptr;
};

// A graph of the driver.
class CudaGraph final : public RecordedWork {
 public:
  CudaGraph(cudaStream_t stream, const std::function<void()>& work) : stream_(stream) {
    XT_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    cudaGraph_t graph = nullptr;
    try {
      work();
    } catch (...) {
      cudaStreamEndCapture(stream_, &graph);
      if (graph) cudaGraphDestroy(graph);
      cudaGetLastError();
      throw;
    }
    XT_CUDA(cudaStreamEndCapture(stream_, &graph));
    const cudaError_t status = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    XT_CUDA(status);
  }
  ~CudaGraph() override { cudaGraphExecDestroy(graph_); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  void run() override { XT_CUDA(cudaGraphLaunch(graph_, stream_)); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t graph_ = nullptr;
};

GpuProperties read_properties(int device) {
  const auto attribute = [device](cudaDeviceAttr which) {
    int value = 0;
    XT_CUDA(cudaDeviceGetAttribute(&value, which, device));
    return value;
  };
  GpuProperties gpu;
  gpu.multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
  gpu.shared_bytes_per_block = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  gpu.compute_capability = 10 * attribute(cudaDevAttrComputeCapabilityMajor) +
                           attribute(cudaDevAttrComputeCapabilityMinor);
  return gpu;
}

// On this GPU and this version of the library.
GemmChoices choices_of(int device, const GpuProperties& gpu, const CudaOptions& options) {
  if (options.gemm_choices.empty()) return GemmChoices();
  return GemmChoices(options.gemm_choices,
                     text(cuda_device_name(device), " with ", gpu.multiprocessors,
                          " multiprocessors and cuBLASLt ", cublasLtGetVersion()),
                     options.measures_gemm);
}

}  // namespace

void fail_cuda(const char* expression, const char* reason, const char* file, int line) {
  fail(expression, ": ", reason, " (", file, ":", line, ")");
}

CudaQueue::CudaQueue(int device, const CudaOptions& options)
    : device_(device), wait_after_launch_(options.wait_after_launch) {
  XT_CUDA(cudaSetDevice(device_));
  gpu_ = read_properties(device_);
  XT_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  XT_CUDA(cudaMalloc(&workspace_, kWorkspaceBytes));
  XT_CUDA(cublasCreate(&cublas_));
  XT_CUDA(cublasSetStream(cublas_, stream_));
  XT_CUDA(cublasSetWorkspace(cublas_, workspace_, kWorkspaceBytes));
  XT_CUDA(cublasLtCreate(&cublas_lt_));
  cublas_lt_plans_ = std::make_unique<CublasLtPlans>(choices_of(device_, gpu_, options));
  XT_CUDA(cudaHostAlloc(&fault_.record, sizeof(Fault), cudaHostAllocMapped));
  *fault_.record = Fault{};
  XT_CUDA(cudaMalloc(&fault_.taken, sizeof(unsigned)));
  XT_CUDA(cudaMemsetAsync(fault_.taken, 0, sizeof(unsigned), stream_));
  XT_CUDA(cudaMalloc(&tickets_.drawn, 2 * sizeof(int)));
  XT_CUDA(cudaMemsetAsync(tickets_.drawn, 0, 2 * sizeof(int), stream_));
  tickets_.finished = tickets_.drawn + 1;
}

CudaQueue::~CudaQueue() {
  cudaStreamSynchronize(stream_);
  cublasLtDestroy(cublas_lt_);
  cublasDestroy(cublas_);
  cudaFree(workspace_);
  cudaFree(fault_.taken);
  cudaFree(tickets_.drawn);
  cudaFreeHost(fault_.record);
  cudaStreamDestroy(stream_);
}

void CudaQueue::copy_in(const void* host, void* device, int64_t bytes) {
  if (bytes == 0) return;
  check(!recording_, "queue: recorded work must not copy from the host");
  XT_CUDA(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_));
}

void CudaQueue::copy_out(const void* device, void* host, int64_t bytes) {
  if (bytes == 0) return;
  check(!recording_, "queue: recorded work must not copy to the host");
  XT_CUDA(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_));
}

std::unique_ptr<Event> CudaQueue::record() {
  return std::make_unique<CudaEvent>(*this);
}

std::unique_ptr<RecordedWork> CudaQueue::record_work(const std::function<void()>& work) {
  if (!records()) return Queue::record_work(work);
  return std::make_unique<CudaGraph>(stream_, [&] {
    recording_ = true;
    try {
      work();
    } catch (...) {
      recording_ = false;
      throw;
    }
    recording_ = false;
  });
}

void CudaQueue::synchronize() {
  XT_CUDA(cudaStreamSynchronize(stream_));
  throw_fault();
}

void CudaQueue::throw_fault() {
  if (!fault_.record->met) return;
  const Fault fault = *fault_.record;
  *fault_.record = Fault{};
  XT_CUDA(cudaMemsetAsync(fault_.taken, 0, sizeof(unsigned), stream_));
  fail_index(fault.rule, fault.position, fault.id);
}

}  // namespace xtrain
