#include "distributed/gloo_communicator.h"

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <utility>

#include "core/error.h"
#include "distributed/cpu_communicator.h"
#include "distributed/shared_memory_exchange.h"

namespace xtrain {
namespace {

using std::chrono::milliseconds;

const std::string kPrefix = "gloo/";  // of its keys in the store

// While it lives, a write to a connection that the other side has ended is an error alone. Gloo
// leaves the signal on, which would end the process before it can say what has happened, or pass
// for a reader of the output that has gone. Threads started meanwhile stay without the signal.
class NoBrokenPipeSignal {
 public:
  NoBrokenPipeSignal() {
    sigemptyset(&broken_pipe_);
    sigaddset(&broken_pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &broken_pipe_, &before_);
  }
  ~NoBrokenPipeSignal() {
    if (sigismember(&before_, SIGPIPE) == 1) return;
    const timespec at_once{};
    while (sigtimedwait(&broken_pipe_, nullptr, &at_once) == SIGPIPE) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoBrokenPipeSignal(const NoBrokenPipeSignal&) = delete;
  NoBrokenPipeSignal& operator=(const NoBrokenPipeSignal&) = delete;

 private:
  sigset_t broken_pipe_, before_;
};

// Gloo's view of our store.
class StoreForGloo final : public gloo::rendezvous::Store {
 public:
  StoreForGloo(KeyValueStore& store, milliseconds timeout) : store_(store), timeout_(timeout) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    store_.set(kPrefix + key, std::as_bytes(std::span(data)));
  }
  std::vector<char> get(const std::string& key) override {
    const Bytes bytes = store_.get(kPrefix + key, timeout_);
    std::vector<char> data(bytes.size());
    if (!bytes.empty()) std::memcpy(data.data(), bytes.data(), bytes.size());
    return data;
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const milliseconds& timeout) override {
    for (const std::string& key : keys) store_.get(kPrefix + key, timeout);
  }

 private:
  KeyValueStore& store_;
  const milliseconds timeout_;
};

class GlooExchange final : public Exchange {
 public:
  GlooExchange(const ConnectOptions& options, KeyValueStore& store)
      : timeout_(options.timeout), context_(options.rank, options.size) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = options.address;
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    StoreForGloo gloo_store(store, timeout_);
    context_.setTimeout(timeout_);
    context_.connectFullMesh(gloo_store, device);
  }

  int rank() const override { return context_.rank; }
  int size() const override { return context_.size; }
  void run(const Outgoing& out, const Incoming& in) override;
  void abort(const std::string& reason) override;

 private:
  using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;
  // The buffers of one exchange, by rank; null where nothing travels.
  struct Buffers {
    std::vector<Buffer> out, in;
  };
  void publish(Buffers* buffers);
  void travel(Buffers& buffers);
  template <class Action>
  void with_rank(int rank, Action&& action);

  const milliseconds timeout_;
  gloo::rendezvous::Context context_;
  uint64_t slot_ = 0;  // of the exchange under way: both ends count alike

  std::mutex mutex_;  // of the rest
  Buffers* under_way_ = nullptr;
  std::string abort_reason_;
};

void GlooExchange::run(const Outgoing& out, const Incoming& in) {
  ++slot_;
  Buffers buffers{std::vector<Buffer>(size()), std::vector<Buffer>(size())};
  for (int r = 0; r < size(); ++r) {
    // Gloo takes what it sends without const and leaves it alone.
    void* source = const_cast<std::byte*>(out[r].data());
    if (!out[r].empty()) buffers.out[r] = context_.createUnboundBuffer(source, out[r].size());
    if (!in[r].empty()) buffers.in[r] = context_.createUnboundBuffer(in[r].data(), in[r].size());
  }
  publish(&buffers);
  try {
    travel(buffers);
  } catch (...) {
    publish(nullptr);
    throw;
  }
  publish(nullptr);
}

// From here on an abort reaches the buffers; with none there is nothing to reach.
void GlooExchange::publish(Buffers* buffers) {
  const std::lock_guard lock(mutex_);
  under_way_ = buffers;
  if (buffers) check(abort_reason_.empty(), abort_reason_);
}

void GlooExchange::travel(Buffers& buffers) {
  // Each rank begins with its next neighbour, so that not all of them talk to one.
  for (int i = 1; i < size(); ++i) {
    const int r = (rank() + i) % size();
    with_rank(r, [&] {
      if (buffers.in[r]) buffers.in[r]->recv(r, slot_);
      if (buffers.out[r]) buffers.out[r]->send(r, slot_);
      return true;
    });
  }
  for (int r = 0; r < size(); ++r) {
    with_rank(r, [&] {
      return (!buffers.in[r] || buffers.in[r]->waitRecv(timeout_)) &&
             (!buffers.out[r] || buffers.out[r]->waitSend(timeout_));
    });
  }
}

// The action's failure, an exception or false for an abort, is the rank's unless there is a reason
// to abort.
template <class Action>
void GlooExchange::with_rank(int rank, Action&& action) {
  std::string error = "aborted";
  try {
    if (action()) return;
  } catch (const std::exception& exception) {
    error = exception.what();
  }
  const std::lock_guard lock(mutex_);
  check(abort_reason_.empty(), abort_reason_);
  fail("rank ", rank, " was lost: ", error);
}

void GlooExchange::abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (abort_reason_.empty()) abort_reason_ = reason;
  if (!under_way_) return;
  for (const Buffer& buffer : under_way_->in) {
    if (buffer) buffer->abortWaitRecv();
  }
  for (const Buffer& buffer : under_way_->out) {
    if (buffer) buffer->abortWaitSend();
  }
}

}  // namespace

std::unique_ptr<Communicator> gloo_communicator(const ConnectOptions& options,
                                                KeyValueStore& store) {
  const NoBrokenPipeSignal no_signal;  // in this thread, that of the operations, and Gloo's own
  std::unique_ptr<Exchange> exchange;
  try {
    exchange = std::make_unique<GlooExchange>(options, store);
    if (options.share_memory) exchange = over_shared_memory(std::move(exchange), options.timeout);
  } catch (const std::exception& error) {
    fail("gloo: rank ", options.rank, " at ", options.address,
         " cannot connect with the others: ", error.what());
  }
  return std::make_unique<CpuCommunicator>(std::move(exchange));
}

}  // namespace xtrain
