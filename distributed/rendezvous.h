#pragma once
// Where the ranks of a run meet, keep a store together and learn when one of them is lost.
//
// Every rank keeps a connection to rank 0 for the whole run. A connection that breaks, a failure
// that a rank reports, silence and a rank that lags behind in its collectives are told to all ranks
// at once.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "distributed/environment.h"
#include "distributed/key_value_store.h"
#include "distributed/message.h"
#include "distributed/socket.h"

namespace xtrain {

class RendezvousServer;

struct RendezvousOptions {
  int rank = 0;
  int size = 1;
  MasterAddress master;  // of rank 0, which listens there and nowhere else
  std::string token;
  // For all ranks to arrive; later for a rank to be silent, or to lag behind the others.
  std::chrono::milliseconds timeout{60000};
  Socket listener;  // rank 0: where it already listens, instead of at `master`
};

struct LostRank {
  int rank = 0;
  std::string reason;
  int exit_code = 1;  // of the lost rank, as far as it told

  std::string message() const;  // "rank 1 was lost: connection closed"
};

class Rendezvous final : public KeyValueStore {
 public:
  // Returns when all ranks have joined. Error naming rank 0's address when it is not to be had, the
  // ranks that are missing when the time is over, or why this rank is refused.
  explicit Rendezvous(RendezvousOptions options);
  // Without leave() before, the other ranks take this one for lost.
  ~Rendezvous() override;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  // Of this host, as rank 0 sees it.
  std::string own_address() const { return xtrain::own_address(socket_); }

  void set(const std::string& key, std::span<const std::byte> value) override;
  Bytes get(const std::string& key, std::chrono::milliseconds timeout) override;

  // The texts that all ranks give for the key, by rank. Each key once.
  std::vector<std::string> exchange(const std::string& key, const std::string& own);

  // From now on `begun`, from another thread, is asked for the number of collectives that this rank
  // has begun, and `on_loss` called once, from another thread, when a rank is lost.
  void watch(std::function<int64_t()> begun, std::function<void(const LostRank&)> on_loss);
  // Neither is called any more when this returns.
  void stop_watching();

  std::optional<LostRank> loss() const;
  // Waits for one so long.
  std::optional<LostRank> wait_for_loss(std::chrono::milliseconds time);
  // Tells the others that this rank fails. Returns what all ranks are told, which is the first
  // failure of the run and may be that of another rank.
  LostRank report_failure(const std::string& reason, int exit_code);

  // Returns when all ranks have called it. Error naming the rank that was lost before.
  void leave();

 private:
  void join();
  void stop_listening();
  void listen();
  void read_messages();
  void handle(const Message& message);
  void answer(const Message& message);
  void note_loss(const LostRank& loss);
  bool is_over() const;
  int64_t collectives_begun();
  void check_silence();
  void send_heartbeat();
  void send(const Message& message);
  void check_not_lost(const std::unique_lock<std::mutex>& held) const;

  RendezvousOptions options_;
  std::unique_ptr<RendezvousServer> server_;
  Socket socket_;
  std::mutex sending_;
  std::thread listener_;
  std::atomic<bool> ending_{false};

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  bool welcome_ = false, goodbye_ = false;
  std::string refusal_;
  std::optional<LostRank> loss_;
  int64_t requests_ = 0;
  int64_t awaited_ = -1;  // the request whose answer get() waits for
  std::optional<std::string> answer_;

  std::mutex calling_;  // of what is called on the listening thread
  std::function<int64_t()> begun_;
  std::function<void(const LostRank&)> on_loss_;

  // Of the listening thread alone.
  MessageReader reader_;
  std::chrono::steady_clock::time_point last_heard_, next_heartbeat_;
};

}  // namespace xtrain
