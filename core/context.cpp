#include "core/context.h"

#include <ostream>

#include "core/error.h"
#include "core/parallel.h"

namespace xtrain {
namespace {

// A sanitizer sees overruns and use after free only when every tensor is its own system block.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kCacheBlocks = false;
#else
constexpr bool kCacheBlocks = true;
#endif

}  // namespace

std::ostream& operator<<(std::ostream& out, Device device) {
  return device.is_cpu() ? out << "cpu" : out << "cuda:" << device.index;
}

std::string_view name_of(GemmBackend backend) {
  switch (backend) {
    case GemmBackend::naive:
      return "naive";
    case GemmBackend::tiled:
      return "tiled";
    case GemmBackend::mma:
      return "mma";
    case GemmBackend::library:
      return "library";
    case GemmBackend::library_tf32:
      return "library_tf32";
  }
  return "?";
}

GemmBackend gemm_backend_from_name(std::string_view name) {
  for (GemmBackend b : {GemmBackend::naive, GemmBackend::tiled, GemmBackend::mma,
                        GemmBackend::library, GemmBackend::library_tf32}) {
    if (name == name_of(b)) return b;
  }
  reject_input("gemm backend must be naive, tiled, mma, library or library_tf32; got \"", name,
               "\"");
}

Context cpu_context(int threads) {
  check_input(threads >= 0, "threads must be 0 (all cores) or more; got ", threads);
  Context ctx;
  ctx.threads = threads == 0 ? available_cores() : threads;
  ctx.allocator = std::make_shared<CpuAllocator>(kCacheBlocks);
  ctx.host_allocator = ctx.allocator;
  ctx.queue = cpu_queue();
  return ctx;
}

#if !XT_CUDA_BUILT
int cuda_device_count() {
  return 0;
}

[[noreturn]] static void fail_without_cuda() {
  fail("device cuda: this build has no CUDA code; build with -DXTRAIN_CUDA=ON, or use cpu");
}

std::string cuda_device_name(int) {
  fail_without_cuda();
}

Context cuda_context(int, const CudaOptions&, int) {
  fail_without_cuda();
}
#endif

}  // namespace xtrain
