#include "tools/training_rank.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <new>
#include <thread>

#include "core/cores.h"
#include "core/error.h"
#include "core/mapped_file.h"
#include "distributed/affinity.h"
#include "distributed/rendezvous.h"
#include "tools/program.h"
#include "tools/stop_signals.h"
#include "tools/train_context.h"
#include "tools/train_log.h"
#include "train/checksum.h"
#include "train/trainer.h"

namespace xtrain {
namespace {

using std::chrono::milliseconds;

constexpr int kFailure = 1, kBadInput = 2;

// After a loss a rank is woken from its collective, fails and ends. One that is busy with something
// else is ended after this time, before a launcher loses patience with it.
constexpr auto kToEnd = std::chrono::seconds(6);
// A connection that breaks beneath a collective is seen a moment before its cause is told, and a
// busy host makes that moment long.
constexpr auto kForTheCause = milliseconds(5000);
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

// A rank says once why it ends, whichever thread comes to it first.
void say_why(const std::string& message) {
  static std::atomic_flag said;
  if (!said.test_and_set()) print_error("train_ddp", message);
}

// Of a run: what its collectives took, and how much of that other work did not hide.
void print_communication(std::ostream& out, const CommunicationTime& before,
                         const CommunicationTime& after) {
  const double operations = after.operations - before.operations;
  const double waits = after.waits - before.waits;
  const double hidden = operations > 0.0 ? std::max(0.0, 1.0 - waits / operations) : 1.0;
  char line[128];
  std::snprintf(line, sizeof(line),
                "collectives took %.3f s, waits for them %.3f s: %.0f %% hidden", operations, waits,
                100.0 * hidden);
  out << line << std::endl;
}

[[noreturn]] void end_without_return(const LostRank& loss) {
  say_why(loss.message());
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
    const std::string host = host_name();
    const Among local = among_equals(rendezvous_.exchange("host", host), placement_.rank);
    const bool gpu = wants_gpu(run_.train);
    parallel_ = options_.parallel(gpu, local.count == placement_.size);
    check_same_orders();
    // A launcher may have given every process cores of its own.
    const std::vector<int> cores = allowed_cores();
    const Among sharing =
        among_equals(rendezvous_.exchange("cores", host + " " + core_list(cores)), placement_.rank);
    cores_ = share_of(cores, sharing.index, sharing.count);
    stay_on(cores_);
    const int local_rank = placement_.local_rank.value_or(local.index);
    ctx_ = rank_context(run_.train, gpu ? gpu_of(local_rank) : 0);
    check_same_gemm_choices();
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
    ConnectOptions connection{placement_.rank, placement_.size, rendezvous_.own_address(),
                              options_.timeout() + kAfterTheWatch};
    connection.most_blocks = options_.nccl_max_ctas();
    connection.fewest_blocks = nccl_min_ctas(parallel_.overlap, connection.most_blocks);
    communicator_ = connect(options_.backend(gpu), ctx_, connection, rendezvous_);
    watch(communicator_.get());
    replica_ = std::make_unique<DataParallel>(ctx_, *communicator_, parallel_);
  }

  void train() {
    Logs logs(outs_, *trainer_);
    const CommunicationTime before = communication_time();
    trainer_->run(logs, stop_requested());
    const CommunicationTime after = communication_time();
    const std::string weights = trainer_->weights_checksum();
    rendezvous_.leave();
    for (std::ostream* out : outs_) {
      print_end(*out, *trainer_, ctx_, weights);
      if (communicator_) print_communication(*out, before, after);
    }
    const bool whole = trainer_->state().step == run_.train.max_steps && !stop_requested();
    if (placement_.rank != 0 || !whole) return;
    // Until here a first signal is one that has stopped the others and comes late.
    end_on_signals();
    print_samples(std::cout, *trainer_);
  }

  CommunicationTime communication_time() const {
    return communicator_ ? communicator_->time() : CommunicationTime{};
  }

  // --- losses ------------------------------------------------------------------------------------

  void watch(Communicator* communicator) {
    const auto begun = [communicator] { return communicator ? communicator->begun() : 0; };
    rendezvous_.watch(begun, [communicator](const LostRank& loss) {
      std::thread([loss] {
        std::this_thread::sleep_for(kToEnd);
        end_without_return(loss);
      }).detach();
      if (communicator) communicator->abort(loss.message());
    });
  }

  // Ranks on other hosts may have been started with other arguments.
  void check_same_orders() {
    check_same("config", run_config_to_json(run_));
    check_same("options",
               text("zero ", parallel_.zero, ", bf16 ", parallel_.reduce_in_bf16, ", bucket bytes ",
                    parallel_.bucket_bytes, ", overlap ", parallel_.overlap));
  }

  // Other algorithms add up in another order, and the ranks' weights would part.
  void check_same_gemm_choices() {
    const std::string& path = run_.train.gemm_choices;
    check_same("train.gemm_choices", path.empty() ? "" : checksum_of(MappedFile(path).bytes()));
  }

  void check_same(const std::string& what, const std::string& own) {
    const std::vector<std::string> all = rendezvous_.exchange(what, own);
    for (size_t rank = 1; rank < all.size(); ++rank) {
      check_input(all[rank] == all[0], "all ranks must have the same ", what, "; that of rank ",
                  rank, " is not that of rank 0");
    }
  }

  // What ends the run: the loss of another rank that this one has noticed, or its own failure.
  LostRank cause_of(const std::string& reason, int exit_code) {
    const bool others_may_be_lost =
        exit_code == kFailure && (!communicator_ || !communicator_->failure().empty());
    std::optional<LostRank> loss = rendezvous_.loss();
    if (!loss && others_may_be_lost) loss = rendezvous_.wait_for_loss(kForTheCause);
    return loss ? *loss : rendezvous_.report_failure(reason, exit_code);
  }

  // Tells the others and says it here, at once: to take the run apart may take long where a peer is
  // missing. Returns the exit code.
  int end_for_all(const std::string& reason, int exit_code) {
    const LostRank loss = cause_of(reason, exit_code);
    const bool own = loss.rank == placement_.rank;
    const std::string message = own ? text("rank ", loss.rank, ": ", reason) : loss.message();
    if (log_file_.is_open()) log_file_ << message << std::endl;
    const bool said_there = !own && loss.reason == reason;
    if (!said_there) say_why(own && loss.exit_code == kBadInput ? reason : message);
    return loss.exit_code;
  }

  const RunConfig& run_;
  const TrainDdpOptions& options_;
  const Placement& placement_;
  std::ofstream log_file_;
  std::vector<std::ostream*> outs_;
  Rendezvous rendezvous_;
  std::vector<int> cores_;
  Context ctx_;
  DataParallelOptions parallel_;
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
