#include "tools/train_ddp_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "core/error.h"

namespace xtrain {
namespace {

// A GPU's collectives have a price each, and what travels behind backward needs no more parts than
// let the optimizer's work on one hide the gathering of another. Those of a CPU cost their bytes
// alone, and whatever leaves early is not waited for.
constexpr double kGpuBucketMb = 25.0, kGpuBucketMbBehind = 128.0, kCpuBucketMb = 1.0;

// Collectives behind backward have all of a GPU for themselves: more blocks than NCCL would take.
constexpr int kBlocksBehind = 32;

}  // namespace

DataParallelOptions parallel_options(const ParallelChoices& choices, bool gpu, bool one_host) {
  DataParallelOptions options;
  const bool fast_links = gpu && one_host;
  options.zero = choices.zero.value_or(fast_links);
  options.overlap = choices.overlap.value_or(!fast_links);
  options.reduce_in_bf16 = choices.reduce_in_bf16;
  const double gpu_mb = options.overlap ? kGpuBucketMb : kGpuBucketMbBehind;
  options.bucket_bytes =
      static_cast<int64_t>(choices.bucket_mb.value_or(gpu ? gpu_mb : kCpuBucketMb) * (1 << 20));
  return options;
}

std::optional<int> nccl_min_ctas(bool overlap, const std::optional<int>& most) {
  if (overlap) return std::nullopt;
  return std::min(kBlocksBehind, most.value_or(kBlocksBehind));
}

std::optional<bool> TrainDdpOptions::Choice::chosen() const {
  return option->count() > 0 ? std::optional<bool>(yes) : std::nullopt;
}

TrainDdpOptions::TrainDdpOptions(CLI::App& app) {
  const std::string group = "Data-parallel training";
  const auto add = [&](CLI::Option* option) {
    option->group(group);
    return option;
  };
  const auto add_choice = [&](const std::string& flags, Choice& choice, const std::string& help) {
    choice.option = add(app.add_flag(flags, choice.yes, help))->take_last();
  };
  add(app.add_option("--nproc", nproc_,
                     "processes to start on this host; without it, and not under torchrun, srun or "
                     "mpirun: one a GPU, or one"))
      ->check(CLI::Range(1, 1024));
  add(app.add_option("--backend", backend_, "nccl for GPUs, gloo for CPUs, or auto"))
      ->check(CLI::IsMember({"auto", "nccl", "gloo"}))
      ->capture_default_str();
  add_choice("--zero,!--no-zero", zero_,
             "share the optimizer's state out among the ranks (ZeRO 1), or not; unless given, the "
             "GPUs of one host do");
  add(app.add_option("--reduce", reduce_, "gradients travel as f32 or bf16"))
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
  add(app.add_option("--bucket-mb", bucket_mb_,
                     text("MiB of gradients that travel together; unless given ", kGpuBucketMb,
                          " on GPUs beside backward, ", kGpuBucketMbBehind, " behind it, and ",
                          kCpuBucketMb, " on CPUs")))
      ->check(CLI::Range(0.001, 65536.0));
  add_choice(
      "--overlap,!--no-overlap", overlap_,
      "gradients travel beside backward, or when it has ended and then take nothing from it; "
      "unless given, beside it but on the GPUs of one host");
  add(app.add_option("--nccl-max-ctas", nccl_max_ctas_,
                     "blocks (CTAs) of a GPU that NCCL takes at most; unless given it decides, and "
                     "takes no fewer than 32 when backward has ended"))
      ->check(CLI::Range(1, 64));
  add(app.add_option("--timeout", timeout_s_,
                     "seconds for all ranks to arrive; for a rank to be silent or to lag behind"))
      ->check(CLI::Range(0.1, 1e6))
      ->capture_default_str();
  add(app.add_option("--max-restarts", max_restarts_,
                     "with --nproc: start all ranks again from the last checkpoint so many times"))
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  add(app.add_option("--master-addr", master_.host, "host of rank 0, instead of MASTER_ADDR"));
  add(app.add_option("--master-port", master_.port, "port of rank 0, instead of MASTER_PORT"))
      ->check(CLI::Range(1, 65535));
  add(app.add_option("--log-dir", log_dir_, "folder for a log of every rank, rank_0.log ..."));
  add(app.add_flag("--dry-run", dry_run_, "print what would be started and stop"));
}

Backend TrainDdpOptions::backend(bool gpu) const {
  const Backend fits = gpu ? Backend::nccl : Backend::gloo;
  check_input(backend_ == "auto" || backend_ == name_of(fits), "--backend ", backend_,
              ": nccl is for GPUs and gloo for CPUs; this run computes on ",
              gpu ? "GPUs (choose CPUs with --device cpu)" : "CPUs");
  check_input(is_built(fits), "data-parallel training on ", gpu ? "GPUs" : "CPUs", " needs ",
              name_of(fits), ", which this build lacks; configure it with -DXTRAIN_",
              gpu ? "NCCL" : "GLOO", "=ON");
  return fits;
}

DataParallelOptions TrainDdpOptions::parallel(bool gpu, bool one_host) const {
  return parallel_options({zero_.chosen(), overlap_.chosen(), bucket_mb_, reduce_ == "bf16"}, gpu,
                          one_host);
}

std::chrono::milliseconds TrainDdpOptions::timeout() const {
  return std::chrono::milliseconds(static_cast<int64_t>(timeout_s_ * 1000.0));
}

}  // namespace xtrain
