#pragma once
// Where and how to compute. A Context is passed to every op; nothing about execution is global.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/allocator.h"
#include "core/device.h"
#include "core/queue.h"
#include "core/random.h"

namespace xtrain {

// naive: the definition, one dot product an element. tiled: blocked for caches and registers, ours.
// mma: tensor cores, ours (CUDA, bf16 only). library: BLAS on the CPU; cuBLAS on the GPU, but for
// products of at most 8 rows, which a kernel of ours reads at the rate of memory.
// library_tf32: cuBLAS that may round f32 operands to TF32, which no other backend does (CUDA
// only).
enum class GemmBackend : uint8_t { naive, tiled, mma, library, library_tf32 };

std::string_view name_of(GemmBackend backend);
GemmBackend gemm_backend_from_name(std::string_view name);  // InputError naming them

struct Context {
  Device device;
  int threads = 1;  // CPU threads of a parallel loop; results do not depend on it
  GemmBackend gemm = GemmBackend::tiled;
  RandomKey random;       // dropout draws from it
  bool training = false;  // dropout acts only when true
  // Nothing on the queue writes what ops take as weights or biases, nor what a cache holds: kernels
  // may read these while those before them still run.
  bool weights_rest = false;
  std::shared_ptr<Allocator> allocator;
  std::shared_ptr<Allocator> host_allocator;  // memory that the queue copies from and to fastest
  std::shared_ptr<Queue> queue;
  bool computes = true;  // false: ops take their memory and do nothing else
};

// A CPU context with its own allocator. threads 0: one a core of the inherited affinity mask.
Context cpu_context(int threads = 0);

struct CudaOptions {
  bool pool = true;                // false: every tensor is a block of the driver by itself
  bool wait_after_launch = false;  // an error of a kernel then names that kernel
  // The file of cuBLASLt's algorithms (core/cuda/gemm_choices.h); empty: the library's first
  // choice. Products that the file lacks are measured and added, or else take the first choice.
  std::string gemm_choices;
  bool measures_gemm = false;
};

// A context that claims to be on that device, be it there or not, on which ops take memory as they
// would there but compute nothing: whatever is read is zero. Its allocator tells how much memory
// work needs; what kernels take by themselves while they run is not in it. No memory is touched.
Context sizing_context(Device device);

// How many GPUs this process sees; 0 in a build without CUDA code.
int cuda_device_count();
// What the maker calls it, such as "NVIDIA H200". Error where there is no such GPU.
std::string cuda_device_name(int index);

// A GPU context with its own stream, pool and library handles. Error where there is no such GPU or
// the build has no CUDA code. Host loops run on `threads` threads, as in cpu_context.
Context cuda_context(int index = 0, const CudaOptions& options = {}, int threads = 0);

}  // namespace xtrain
