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
  }
  return "?";
}

GemmBackend gemm_backend_from_name(std::string_view name) {
  for (GemmBackend b :
       {GemmBackend::naive, GemmBackend::tiled, GemmBackend::mma, GemmBackend::library}) {
    if (name == name_of(b)) return b;
  }
  reject_input("gemm backend must be naive, tiled, mma or library; got \"", name, "\"");
}

Context cpu_context(int threads) {
  check_input(threads >= 0, "threads must be 0 (all cores) or more; got ", threads);
  Context ctx;
  ctx.threads = threads == 0 ? available_cores() : threads;
  ctx.allocator = std::make_shared<CpuAllocator>(kCacheBlocks);
  return ctx;
}

}  // namespace xtrain
