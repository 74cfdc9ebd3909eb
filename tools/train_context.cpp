#include "tools/train_context.h"

#include "core/dispatch.h"
#include "core/error.h"
#include "core/parallel.h"

namespace xtrain {
namespace {

void choose_gemm(const TrainConfig& config, Context& ctx) {
  if (!config.gemm) return;
  ctx.gemm = *config.gemm;
  const bool tensor_cores = ctx.gemm == GemmBackend::mma || ctx.gemm == GemmBackend::library_tf32;
  check_input(!tensor_cores || ctx.device.is_cuda(), "train.gemm ", name_of(ctx.gemm),
              ": runs on a GPU only; use auto, naive, tiled or library");
  check_input(ctx.gemm != GemmBackend::mma || config.exec.dtype == Dtype::bf16,
              "train.gemm mma: multiplies bf16 only; got train.dtype ", config.exec.dtype);
}

CudaOptions cuda_options(const TrainConfig& config, bool measures) {
  CudaOptions options;
  options.gemm_choices = config.gemm_choices;
  options.measures_gemm = measures;
  return options;
}

Context context_for(const TrainConfig& config, int gpu, bool measures) {
  const int threads = static_cast<int>(config.threads);
  const bool on_gpu = wants_gpu(config);
  check_input(config.gemm_choices.empty() || on_gpu, "train.gemm_choices ", config.gemm_choices,
              ": cuBLASLt runs on a GPU only; leave it empty");
  Context ctx =
      on_gpu ? cuda_context(gpu, cuda_options(config, measures), threads) : cpu_context(threads);
  choose_gemm(config, ctx);
  if (!on_gpu) bind_threads(ctx.threads);
  return ctx;
}

}  // namespace

bool wants_gpu(const TrainConfig& config) {
  const DeviceChoice choice = config.device;
  if (choice != DeviceChoice::cuda) return choice == DeviceChoice::any && cuda_device_count() > 0;
  check_input(kCudaBuilt, "train.device cuda: this build has no CUDA code; use auto or cpu");
  check_input(cuda_device_count() > 0,
              "train.device cuda: this process sees no GPU; use auto or cpu");
  return true;
}

Context train_context(const TrainConfig& config, int gpu) {
  return context_for(config, gpu, true);
}

Context rank_context(const TrainConfig& config, int gpu) {
  return context_for(config, gpu, false);
}

}  // namespace xtrain
