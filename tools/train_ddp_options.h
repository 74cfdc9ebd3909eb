#pragma once
// What train_ddp is told beyond the options of train.

#include <chrono>
#include <optional>
#include <string>

#include "distributed/backend.h"
#include "distributed/ddp.h"
#include "distributed/environment.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace xtrain {

// What a person has chosen of the ways in which ranks train together.
struct ParallelChoices {
  std::optional<bool> zero = std::nullopt, overlap = std::nullopt;
  std::optional<double> bucket_mb = std::nullopt;
  bool reduce_in_bf16 = false;
};

// With what fits the machine where nothing was chosen. one_host: all ranks are on one host, whose
// GPUs reach each other at the rate of their links.
DataParallelOptions parallel_options(const ParallelChoices& choices, bool gpu, bool one_host);
// Blocks (CTAs) that NCCL shall take at least, of at most so many; none: it decides.
std::optional<int> nccl_min_ctas(bool overlap, const std::optional<int>& most);

class TrainDdpOptions {
 public:
  // Adds the options to the app; values are valid after the app has parsed.
  explicit TrainDdpOptions(CLI::App& app);
  TrainDdpOptions(const TrainDdpOptions&) = delete;
  TrainDdpOptions& operator=(const TrainDdpOptions&) = delete;

  const std::optional<int>& nproc() const { return nproc_; }
  // InputError when it is not built.
  Backend backend(bool gpu) const;
  DataParallelOptions parallel(bool gpu, bool one_host) const;
  const std::optional<int>& nccl_max_ctas() const { return nccl_max_ctas_; }
  std::chrono::milliseconds timeout() const;
  int max_restarts() const { return max_restarts_; }
  const MasterChoice& master() const { return master_; }
  const std::string& log_dir() const { return log_dir_; }  // "" for none
  bool dry_run() const { return dry_run_; }

 private:
  // A flag and its opposite, or neither.
  struct Choice {
    const CLI::Option* option = nullptr;
    bool yes = false;
    std::optional<bool> chosen() const;
  };

  std::optional<int> nproc_;
  std::string backend_ = "auto";
  Choice zero_;
  std::string reduce_ = "f32";
  std::optional<double> bucket_mb_;
  Choice overlap_;
  std::optional<int> nccl_max_ctas_;
  double timeout_s_ = 300.0;
  int max_restarts_ = 0;
  MasterChoice master_;
  std::string log_dir_;
  bool dry_run_ = false;
};

}  // namespace xtrain
