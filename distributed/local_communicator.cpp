#include "distributed/local_communicator.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>

#include "core/error.h"
#include "distributed/cpu_communicator.h"

namespace xtrain {

// Where the ranks meet: nobody goes on before all have come.
struct LocalGroup::Meeting {
  explicit Meeting(int ranks) : size(ranks), out(ranks), came(ranks, 0) {}

  const int size;
  std::vector<const Exchange::Outgoing*> out;  // of each rank, between two meetings

  std::mutex mutex;  // of the rest
  std::condition_variable changed;
  std::vector<int64_t> came;  // how often each rank has come
  std::string failure;

  void come(int rank) {
    std::unique_lock lock(mutex);
    const int64_t turn = ++came[rank];
    changed.notify_all();
    const auto all_came = [&] {
      return std::all_of(came.begin(), came.end(), [&](int64_t turns) { return turns >= turn; });
    };
    changed.wait(lock, [&] { return all_came() || !failure.empty(); });
    // Where all have come, what has gone wrong since concerns the next meeting.
    if (!all_came()) fail(failure);
  }

  void abort(const std::string& reason) {
    {
      const std::lock_guard lock(mutex);
      if (failure.empty()) failure = reason;
    }
    changed.notify_all();
  }
};

class LocalGroup::LocalExchange final : public Exchange {
 public:
  LocalExchange(std::shared_ptr<Meeting> meeting, int rank)
      : meeting_(std::move(meeting)), rank_(rank) {}
  ~LocalExchange() override { meeting_->abort(text("rank ", rank_, " has left")); }

  int rank() const override { return rank_; }
  int size() const override { return meeting_->size; }

  void run(const Outgoing& out, const Incoming& in) override {
    meeting_->out[rank_] = &out;
    meeting_->come(rank_);
    const std::string failure = copy_in(in);
    meeting_->come(rank_);  // until then others may read `out`
    check(failure.empty(), failure);
  }

  void abort(const std::string& reason) override { meeting_->abort(reason); }

 private:
  // What was wrong, or nothing.
  std::string copy_in(const Incoming& in) const {
    for (int r = 0; r < size(); ++r) {
      const std::span<const std::byte> source = (*meeting_->out[r])[rank_];
      if (source.size() != in[r].size()) {
        return text("rank ", r, " sends ", source.size(), " bytes where rank ", rank_, " expects ",
                    in[r].size(), ": all ranks must call the same operations");
      }
      if (!source.empty()) std::memcpy(in[r].data(), source.data(), source.size());
    }
    return "";
  }

  const std::shared_ptr<Meeting> meeting_;
  const int rank_;
};

LocalGroup::LocalGroup(int size) : meeting_(std::make_shared<Meeting>(size)) {
  check(size >= 1, "a group needs at least one rank; got ", size);
}

std::unique_ptr<Communicator> LocalGroup::communicator(int rank) const {
  check(rank >= 0 && rank < meeting_->size, "the rank must be below the group's size ",
        meeting_->size, "; got ", rank);
  return std::make_unique<CpuCommunicator>(std::make_unique<LocalExchange>(meeting_, rank));
}

}  // namespace xtrain
