#include "distributed/shared_memory_exchange.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <type_traits>
#include <utility>

#include "core/error.h"
#include "distributed/shared_memory.h"

namespace xtrain {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Channel = SharedMemory::Channel;

// Between two looks at whether a rank is still there; a message wakes who waits for it at once.
constexpr milliseconds kBetweenLooks{100};

class SharedMemoryExchange final : public Exchange {
 public:
  SharedMemoryExchange(std::unique_ptr<SharedMemory> memory, int rank, int size,
                       milliseconds timeout)
      : memory_(std::move(memory)), rank_(rank), size_(size), timeout_(timeout) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void run(const Outgoing& out, const Incoming& in) override;
  void abort(const std::string& reason) override;

 private:
  // Bytes of the exchange under way that have left for each rank, or have come from it.
  struct Progress {
    std::vector<size_t> out, in;
  };
  bool move(const Outgoing& out, const Incoming& in, Progress& done);
  bool send(int to, std::span<const std::byte> message, size_t& done);
  bool receive(int from, std::span<std::byte> message, size_t& done);
  void check_not_aborted();

  const std::unique_ptr<SharedMemory> memory_;
  const int rank_, size_;
  const milliseconds timeout_;

  std::mutex mutex_;  // of the rest
  std::string abort_reason_;
};

void SharedMemoryExchange::run(const Outgoing& out, const Incoming& in) {
  Progress done{std::vector<size_t>(size_), std::vector<size_t>(size_)};
  const auto is_awaited = [&](int r) {
    return done.out[r] < out[r].size() || done.in[r] < in[r].size();
  };
  Clock::time_point deadline = Clock::now() + timeout_;
  bool left = false;  // what the rank has sent before may still lie there
  while (true) {
    memory_->still_bell(rank_);  // what it has rung for is looked at here
    check_not_aborted();
    const bool moved = move(out, in, done);
    int awaited = 0;
    while (awaited < size_ && !is_awaited(awaited)) ++awaited;
    if (awaited == size_) return;
    if (moved) {
      deadline = Clock::now() + timeout_;
      left = false;
      continue;
    }
    check(!left, "rank ", awaited, " was lost: it has ended");
    check(Clock::now() < deadline, "rank ", awaited, " was lost: nothing came from it in ",
          std::chrono::duration<double>(timeout_).count(), " s");
    const bool woken = memory_->wait_for_bell(rank_, std::min(kBetweenLooks, timeout_));
    left = !woken && memory_->has_left(awaited);
  }
}

// Each rank begins with its next neighbour, so that not all of them wake one.
bool SharedMemoryExchange::move(const Outgoing& out, const Incoming& in, Progress& done) {
  bool moved = false;
  for (int i = 1; i < size_; ++i) {
    const int r = (rank_ + i) % size_;
    moved = send(r, out[r], done.out[r]) || moved;
    moved = receive(r, in[r], done.in[r]) || moved;
  }
  return moved;
}

bool SharedMemoryExchange::send(int to, std::span<const std::byte> message, size_t& done) {
  Channel& channel = memory_->channel(rank_, to);
  const uint64_t before = channel.filled;
  uint64_t filled = before;
  while (done < message.size() && filled - channel.emptied < SharedMemory::kPieces) {
    const std::span<std::byte> piece = memory_->piece(rank_, to, filled);
    const size_t bytes = std::min(piece.size(), message.size() - done);
    std::memcpy(piece.data(), message.data() + done, bytes);
    channel.message_bytes[filled % SharedMemory::kPieces] = message.size();
    channel.filled = ++filled;
    done += bytes;
  }
  if (filled == before) return false;
  memory_->ring_bell(to);
  return true;
}

// A sender that has found no piece empty waits for the first one; others are left to sleep.
bool SharedMemoryExchange::receive(int from, std::span<std::byte> message, size_t& done) {
  Channel& channel = memory_->channel(from, rank_);
  const uint64_t before = channel.emptied;
  uint64_t emptied = before;
  while (done < message.size() && emptied < channel.filled) {
    const uint64_t sent = channel.message_bytes[emptied % SharedMemory::kPieces];
    check(sent == message.size(), "rank ", from, " sends ", sent, " bytes where rank ", rank_,
          " expects ", message.size(), ": all ranks must call the same operations");
    const std::span<const std::byte> piece = memory_->piece(from, rank_, emptied);
    const size_t bytes = std::min(piece.size(), message.size() - done);
    std::memcpy(message.data() + done, piece.data(), bytes);
    channel.emptied = emptied + 1;
    if (channel.filled - emptied == SharedMemory::kPieces) memory_->ring_bell(from);
    ++emptied;
    done += bytes;
  }
  return emptied > before;
}

void SharedMemoryExchange::check_not_aborted() {
  const std::lock_guard lock(mutex_);
  check(abort_reason_.empty(), abort_reason_);
}

void SharedMemoryExchange::abort(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (abort_reason_.empty()) abort_reason_ = reason;
  }
  memory_->ring_bell(rank_);
}

// --- the start -----------------------------------------------------------------------------------

// What rank 0 gives to all.
template <class T>
T from_first(Exchange& meeting, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  Exchange::Outgoing out(meeting.size());
  Exchange::Incoming in(meeting.size());
  if (meeting.rank() == 0) {
    std::fill(out.begin() + 1, out.end(), std::as_bytes(std::span(&value, 1)));
  } else {
    in[0] = std::as_writable_bytes(std::span(&value, 1));
  }
  meeting.run(out, in);
  return value;
}

bool all_of(Exchange& meeting, bool own) {
  const std::byte mine{own};
  std::vector<std::byte> all(meeting.size(), mine);
  Exchange::Outgoing out(meeting.size());
  Exchange::Incoming in(meeting.size());
  for (int r = 0; r < meeting.size(); ++r) {
    if (r == meeting.rank()) continue;
    out[r] = std::span(&mine, 1);
    in[r] = std::span(all).subspan(r, 1);
  }
  meeting.run(out, in);
  return std::find(all.begin(), all.end(), std::byte{false}) == all.end();
}

// None where it cannot be had.
template <class... Arguments>
std::unique_ptr<SharedMemory> memory_of(const Arguments&... arguments) {
  try {
    return std::make_unique<SharedMemory>(arguments...);
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace

std::unique_ptr<Exchange> over_shared_memory(std::unique_ptr<Exchange> meeting,
                                             milliseconds timeout) {
  const int rank = meeting->rank(), size = meeting->size();
  std::unique_ptr<SharedMemory> memory;
  if (rank == 0) memory = memory_of(size);
  const auto place = from_first(*meeting, memory ? memory->place() : SharedMemory::Place{});
  if (rank > 0) memory = memory_of(size, rank, place);
  if (!all_of(*meeting, memory != nullptr)) return meeting;
  return std::make_unique<SharedMemoryExchange>(std::move(memory), rank, size, timeout);
}

}  // namespace xtrain
