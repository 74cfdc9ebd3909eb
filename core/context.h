#pragma once
// Where and how to compute. A Context is passed to every op; nothing about execution is global.

#include <cstdint>
#include <memory>
#include <string_view>

#include "core/allocator.h"
#include "core/device.h"
#include "core/random.h"

namespace xtrain {

// naive: the definition, one dot product an element. tiled: blocked for caches and registers, ours.
// mma: tensor cores, ours (CUDA only). library: BLAS on the CPU, cuBLAS on the GPU.
enum class GemmBackend : uint8_t { naive, tiled, mma, library };

std::string_view name_of(GemmBackend backend);
GemmBackend gemm_backend_from_name(std::string_view name);  // InputError naming the four names

struct Context {
  Device device;
  int threads = 1;  // CPU threads of a parallel loop; results do not depend on it
  GemmBackend gemm = GemmBackend::tiled;
  RandomKey random;       // dropout draws from it
  bool training = false;  // dropout acts only when true
  std::shared_ptr<Allocator> allocator;
};

// A CPU context with its own allocator. threads 0: one a core of the inherited affinity mask.
Context cpu_context(int threads = 0);

}  // namespace xtrain
