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

class TrainDdpOptions {
 public:
  // Adds the options to the app; values are valid after the app has parsed.
  explicit TrainDdpOptions(CLI::App& app);
  TrainDdpOptions(const TrainDdpOptions&) = delete;
  TrainDdpOptions& operator=(const TrainDdpOptions&) = delete;

  const std::optional<int>& nproc() const { return nproc_; }
  // InputError when it is not built.
  Backend backend(bool gpu) const;
  // one_host: all ranks are on one host, whose GPUs reach each other at the rate of their links.
  DataParallelOptions parallel(bool gpu, bool one_host) const;
  const std::optional<int>& nccl_max_ctas() const { return nccl_max_ctas_; }
  std::optional<int> nccl_min_ctas(bool overlap) const;
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
    bool value_or(bool other) const;
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
