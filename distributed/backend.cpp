#include "distributed/backend.h"

#include "core/error.h"
#if XT_GLOO_BUILT
#include "distributed/gloo_communicator.h"
#endif
#if XT_NCCL_BUILT
#include "distributed/nccl_communicator.h"
#endif

namespace xtrain {

std::string_view name_of(Backend backend) {
  return backend == Backend::nccl ? "nccl" : "gloo";
}

bool is_built(Backend backend) {
  return backend == Backend::nccl ? XT_NCCL_BUILT : XT_GLOO_BUILT;
}

namespace {

void check_built(Backend backend) {
  const bool nccl = backend == Backend::nccl;
  check_input(is_built(backend), "backend ", name_of(backend), ": this build has none; ",
              nccl ? "install NCCL beside the CUDA toolkit and configure with -DXTRAIN_NCCL=ON"
                   : "install libgloo-dev and configure with -DXTRAIN_GLOO=ON");
}

}  // namespace

Backend backend_for(const Context& ctx) {
  const Backend backend = ctx.device.is_cuda() ? Backend::nccl : Backend::gloo;
  check_built(backend);
  return backend;
}

std::unique_ptr<Communicator> connect(Backend backend, const Context& ctx,
                                      const ConnectOptions& options, KeyValueStore& store) {
  check_built(backend);
  check_input((backend == Backend::nccl) == ctx.device.is_cuda(), "backend ", name_of(backend),
              ": nccl is for GPUs and gloo for CPUs; the device is ", ctx.device);
  check(options.rank >= 0 && options.rank < options.size, "the rank must be below the number of ",
        "ranks, ", options.size, "; got ", options.rank);
#if XT_NCCL_BUILT
  if (backend == Backend::nccl) return nccl_communicator(ctx, options, store);
#endif
#if XT_GLOO_BUILT
  if (backend == Backend::gloo) return gloo_communicator(options, store);
#endif
  static_cast<void>(store);
  fail("backend ", name_of(backend), ": not built");
}

}  // namespace xtrain
