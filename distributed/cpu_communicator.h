#pragma once
// Collective operations on a CPU, by exchanges between the ranks that a thread runs one after
// another. Sums go in the order of the ranks and round once, whatever carries the bytes.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "distributed/communicator.h"
#include "distributed/elements.h"
#include "distributed/exchange.h"

namespace xtrain {

class CpuCommunicator final : public Communicator {
 public:
  explicit CpuCommunicator(std::unique_ptr<Exchange> exchange);
  // Gives up what is pending.
  ~CpuCommunicator() override;
  CpuCommunicator(const CpuCommunicator&) = delete;
  CpuCommunicator& operator=(const CpuCommunicator&) = delete;

  int rank() const override { return exchange_->rank(); }
  int size() const override { return exchange_->size(); }
  void all_reduce(const Context& ctx, Tensor values) override;
  void reduce_scatter(const Context& ctx, Tensor values, Tensor own) override;
  void all_gather(const Context& ctx, Tensor own, Tensor values) override;
  void broadcast(const Context& ctx, Tensor values, int root) override;
  void wait_for(const Context& ctx, int64_t count) override;
  int64_t begun() const override { return begun_; }
  int64_t completed() const override { return completed_; }
  CommunicationTime time() const override;
  std::string failure() const override;
  void abort(const std::string& reason) override;

 private:
  Elements part_of(const Elements& values, int rank) const;

  // In the thread:
  void reduce(const Elements& values, const Elements& own);
  void gather(const Elements& own, const Elements& values);
  void send_from(const Elements& values, int root);
  void work();

  // `tensors` live until the operation is done.
  void enqueue(std::function<void()> operation, std::vector<Tensor> tensors);
  void throw_failure() const;

  struct Operation {
    std::function<void()> run;
    std::vector<Tensor> tensors;
  };
  const std::unique_ptr<Exchange> exchange_;
  std::vector<std::byte> received_;  // of the thread: other ranks' terms of a sum
  std::atomic<int64_t> begun_{0}, completed_{0};

  mutable std::mutex mutex_;  // of the rest
  std::condition_variable changed_;
  std::deque<Operation> pending_;  // the first is being run
  int64_t ended_ = 0;              // operations that were done or given up
  CommunicationTime time_;
  std::string failure_;  // of the first operation that failed; none is run after it
  bool stopping_ = false;

  std::thread thread_;  // last, since it uses the others
};

}  // namespace xtrain
