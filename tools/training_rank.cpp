#include "tools/training_rank.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <new>
#include <thread>

#include "core/error.h"
#include "distributed/affinity.h"
#include "distributed/rendezvous.h"
#include "tools/stop_signals.h"
#include "tools/train_context.h"
#include "tools/train_log.h"
#include "train/trainer.h"

namespace xtrain {
namespace {

using std::chrono::milliseconds;

constexpr int kFailure = 1, kBadInput = 2;

// After a loss a rank is woken from its collective, fails and ends. One that is busy with something
// else is ended after this time.
constexpr auto kToEnd = std::chrono::seconds(10);
// A connection that breaks beneath a collective is seen a moment before its cause is told.
constexpr auto kForTheCause = milliseconds(1000);
// The watch names a stalled rank; a collective's own limit is for what the watch cannot see.
constexpr auto kAfterTheWatch = milliseconds(5000);

// How many of the ranks before this one, and of all, have said the same as this one.
struct Among {
  int index = 0, count = 0;
};
Among among_equals(const std::vector<std::string>& said, int rank) {
  const auto own = said.begin() + rank;
  return {static_cast<int>(std::count(said.begin(), own, *own)),
          static_cast<int>(std::count(said.begin(), said.end(), *own))};
}

int gpu_of(int local_rank) {
  const int gpus = cuda_device_count();
  if (gpus == 1) return 0;  // the launcher shows every process its own
  check_input(local_rank < gpus, "a host must have a GPU for each of its ranks; local rank ",
              local_rank, " sees ", gpus, " GPUs");
  return local_rank;
}

// Many logs of one run.
class Logs final : public TrainObserver {
 public:
  Logs(const std::vector<std::ostream*>& outs, const Trainer& trainer) {
    for (std::ostream* out : outs) logs_.push_back(std::make_unique<TrainLog>(*out, trainer));
  }
  void on_step(const StepReport& report) override {
    for (const auto& log : logs_) log->on_step(report);
  }
  void on_checkpoint(const std::string& path) override {
    for (const auto& log : logs_) log->on_checkpoint(path);
  }

 private:
  std::vector<std::unique_ptr<TrainLog>> logs_;
};

[[noreturn]] void end_without_return(const LostRank& loss) {
  const std::string line = "train_ddp: " + loss.message() + "\n";
  (void)!write(STDERR_FILENO, line.data(), line.size());
  _exit(loss.exit_code);
}

class TrainingRank {
 public:
  TrainingRank(const RunConfig& run, const TrainDdpOptions& options, const Placement& placement,
               Socket listener)
      : run_(run),
        options_(options),
        placement_(placement),
        rendezvous_({placement.rank, placement.size, placement.master, placement.token,
                     options.timeout(), std::move(listener)}) {
    if (placement.rank == 0) outs_.push_back(&std::cout);
  }
  ~TrainingRank() { rendezvous_.stop_watching(); }
  TrainingRank(const TrainingRank&) = delete;
  TrainingRank& operator=(const TrainingRank&) = delete;

  int run() {
    try {
      stop_on_signals();
      prepare();
      train();
      return 0;
    } catch (const InputError& error) {
      return end_for_all(error.what(), kBadInput);
    } catch (const std::bad_alloc&) {
      return end_for_all("out of memory; use a smaller model, batch or sequence", kFailure);
    } catch (const std::exception& error) {
      return end_for_all(error.what(), kFailure);
    }
  }

 private:
  void open_log() {
    namespace fs = std::filesystem;
    std::error_code error;
    fs::create_directories(options_.log_dir(), error);
    const std::string path =
        (fs::path(options_.log_dir()) / text("rank_", placement_.rank, ".log")).string();
    log_file_.open(path, std::ios::app);
    check_input(log_file_.is_open(), "--log-dir ", options_.log_dir(), ": ", path,
                " cannot be written");
    outs_.push_back(&log_file_);
  }

  void prepare() {
    watch(nullptr);
    if (!options_.log_dir().empty()) open_log();
    check_same_orders();
    const std::string host = host_name();
    const Among local = among_equals(rendezvous_.exchange("host", host), placement_.rank);
    // A launcher may have given every process cores of its own.
    const std::vector<int> cores = allowed_cores();
    const Among sharing =
        among_equals(rendezvous_.exchange("cores", host + " " + core_list(cores)), placement_.rank);
    cores_ = share_of(cores, sharing.index, sharing.count);
    stay_on(cores_);
    const bool gpu = wants_gpu(run_.train);
    const int local_rank = placement_.local_rank.value_or(local.index);
    ctx_ = train_context(run_.train, gpu ? gpu_of(local_rank) : 0);
    join_training(gpu);
    trainer_.emplace(ctx_, run_, *replica_);
    check_same("training data", text(trainer_->data().train->size(), " tokens"));
    for (std::ostream* out : outs_) {
      print_start(*out, *trainer_, ctx_);
      *out << "rank " << placement_.rank << " of " << placement_.size << " on " << host;
      if (communicator_) *out << " over " << name_of(options_.backend(gpu));
      *out << ", cores " << core_list(cores_) << std::endl;
    }
  }

  void join_training(bool gpu) {
    if (placement_.size == 1) {
      replica_ = std::make_unique<Replica>();
      return;
    }
    const ConnectOptions connection{placement_.rank, placement_.size, rendezvous_.own_address(),
                                    options_.timeout() + kAfterTheWatch};
    communicator_ = connect(options_.backend(gpu), ctx_, connection, rendezvous_);
    watch(communicator_.get());
    replica_ = std::make_unique<DataParallel>(ctx_, *communicator_, options_.parallel());
  }

  void train() {
    Logs logs(outs_, *trainer_);
    trainer_->run(logs, stop_requested());
    end_on_signals();
    const std::string weights = trainer_->weights_checksum();
    rendezvous_.leave();
    for (std::ostream* out : outs_) print_end(*out, *trainer_, ctx_, weights);
    const bool whole = trainer_->state().step == run_.train.max_steps && !stop_requested();
    if (placement_.rank == 0 && whole) print_samples(std::cout, *trainer_);
  }

  // --- losses ------------------------------------------------------------------------------------

  void watch(Communicator* communicator) {
    const auto begun = [communicator] { return communicator ? communicator->begun() : 0; };
    rendezvous_.watch(begun, [communicator](const LostRank& loss) {
      if (communicator) communicator->abort(loss.message());
      std::thread([loss] {
        std::this_thread::sleep_for(kToEnd);
        end_without_return(loss);
      }).detach();
    });
  }

  // Ranks on other hosts may have been started with other arguments.
  void check_same_orders() {
    const DataParallelOptions parallel = options_.parallel();
    check_same("config", run_config_to_json(run_));
    check_same("options", text("zero ", parallel.zero, ", bf16 ", parallel.reduce_in_bf16,
                               ", bucket bytes ", parallel.bucket_bytes));
  }

  void check_same(const std::string& what, const std::string& own) {
    const std::vector<std::string> all = rendezvous_.exchange(what, own);
    for (size_t rank = 1; rank < all.size(); ++rank) {
      check_input(all[rank] == all[0], "all ranks must have the same ", what, "; that of rank ",
                  rank, " is not that of rank 0");
    }
  }

  // Tells the others, and either throws what there is to print or returns the exit code.
  int end_for_all(const std::string& reason, int exit_code) {
    std::optional<LostRank> loss = rendezvous_.loss();
    if (!loss && exit_code == kFailure) loss = rendezvous_.wait_for_loss(kForTheCause);
    if (!loss) loss = rendezvous_.report_failure(reason, exit_code);
    const bool own = loss->rank == placement_.rank;
    const std::string message = own ? text("rank ", loss->rank, ": ", reason) : loss->message();
    if (log_file_.is_open()) log_file_ << message << std::endl;
    if (!own && loss->reason == reason) return loss->exit_code;  // has been printed by that rank
    check_input(loss->exit_code != kBadInput, own ? reason : message);
    fail(message);
  }

  const RunConfig& run_;
  const TrainDdpOptions& options_;
  const Placement& placement_;
  std::ofstream log_file_;
  std::vector<std::ostream*> outs_;
  Rendezvous rendezvous_;
  std::vector<int> cores_;
  Context ctx_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<Replica> replica_;
  std::optional<Trainer> trainer_;
};

}  // namespace

int train_as_rank(const RunConfig& run, const TrainDdpOptions& options, const Placement& placement,
                  Socket listener) {
  TrainingRank rank(run, options, placement, std::move(listener));
  return rank.run();
}

}  // namespace xtrain
