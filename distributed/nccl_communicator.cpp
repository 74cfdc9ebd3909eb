#include "distributed/nccl_communicator.h"

#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/cuda/check.h"
#include "core/cuda/queue_cuda.h"
#include "core/error.h"
#include "distributed/elements.h"

namespace xtrain {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kIdKey = "nccl/id";
constexpr milliseconds kPause{20};  // between two looks at what runs by itself

ncclDataType_t nccl_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64:
      return ncclFloat64;
    case Dtype::f32:
      return ncclFloat32;
    case Dtype::bf16:
      return ncclBfloat16;
    case Dtype::i32:
      return ncclInt32;
    case Dtype::i64:
      return ncclInt64;
  }
  return ncclFloat32;
}

// Sums inside the switches of NVLink (NVLS) have no fixed order, and not every host bears them.
// Whoever has set the variable decides otherwise.
void keep_sums_out_of_switches() {
  setenv("NCCL_NVLS_ENABLE", "0", 0);
}

ncclUniqueId shared_id(const ConnectOptions& options, KeyValueStore& store) {
  ncclUniqueId id;
  if (options.rank == 0) {
    const ncclResult_t result = ncclGetUniqueId(&id);
    check(result == ncclSuccess, "nccl: cannot make an id: ", ncclGetErrorString(result));
    store.set(kIdKey, std::as_bytes(std::span(&id, 1)));
    return id;
  }
  const Bytes bytes = store.get(kIdKey, options.timeout);
  check(bytes.size() == sizeof(id), "nccl: the store's ", kIdKey, " must hold ", sizeof(id),
        " bytes; got ", bytes.size());
  std::memcpy(&id, bytes.data(), sizeof(id));
  return id;
}

// A point of a stream.
class StreamPoint {
 public:
  explicit StreamPoint(cudaStream_t stream) {
    XT_CUDA(cudaEventCreate(&event_));
    XT_CUDA(cudaEventRecord(event_, stream));
  }
  ~StreamPoint() {
    if (event_) cudaEventDestroy(event_);
  }
  StreamPoint(StreamPoint&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  StreamPoint& operator=(StreamPoint&&) = delete;

  void hold_back(cudaStream_t stream) const { XT_CUDA(cudaStreamWaitEvent(stream, event_, 0)); }
  bool passed() const { return cudaEventQuery(event_) != cudaErrorNotReady; }

  // Between two points that have been passed; 0 after an error of the device.
  static double seconds(const StreamPoint& from, const StreamPoint& to) {
    float ms = 0.0f;
    return cudaEventElapsedTime(&ms, from.event_, to.event_) == cudaSuccess ? ms / 1000.0 : 0.0;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

cudaStream_t stream_of(const Context& ctx) {
  return static_cast<CudaQueue&>(*ctx.queue).stream();
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const Context& ctx, const ConnectOptions& options, KeyValueStore& store);
  ~NcclCommunicator() override;
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  void all_reduce(const Context& ctx, Tensor values) override;
  void reduce_scatter(const Context& ctx, Tensor values, Tensor own) override;
  void all_gather(const Context& ctx, Tensor own, Tensor values) override;
  void broadcast(const Context& ctx, Tensor values, int root) override;
  void wait_for(const Context& ctx, int64_t count) override;
  int64_t begun() const override { return begun_; }
  int64_t completed() const override;
  CommunicationTime time() const override;
  std::string failure() const override;
  void abort(const std::string& reason) override;

 private:
  using Lock = std::unique_lock<std::mutex>;

  void connect(const ncclUniqueId& id);
  void disconnect();
  ncclResult_t settled(ncclResult_t result, Lock& lock);
  std::string text_of(ncclResult_t error) const;
  template <class Call>
  void enqueue(const Context& ctx, std::vector<Tensor> tensors, Call&& call);
  void watch();
  void look();
  void note_progress();
  void abort_locked(const std::string& reason);
  void throw_failure() const;

  struct Operation {
    StreamPoint start, done;
    Clock::time_point enqueued;
  };
  struct Wait {
    StreamPoint start, end;  // of the stream that waits
  };
  // Memory of an operation must not go to other work before that waits for the operation.
  struct InUse {
    int64_t until;  // so many operations are done
    std::vector<Tensor> tensors;
  };
  const ConnectOptions options_;
  const Device device_;
  cudaStream_t stream_ = nullptr;
  std::deque<InUse> in_use_;
  std::atomic<int64_t> begun_{0};

  mutable std::mutex mutex_;  // of the rest; NCCL's calls on one communicator exclude each other
  std::condition_variable stop_;
  ncclComm_t comm_ = nullptr;
  std::deque<Operation> under_way_;
  std::deque<Wait> waits_;
  int64_t completed_ = 0;
  CommunicationTime time_;
  std::string failure_;
  bool stopping_ = false;

  std::thread watcher_;  // last, since it uses the others
};

NcclCommunicator::NcclCommunicator(const Context& ctx, const ConnectOptions& options,
                                   KeyValueStore& store)
    : options_(options), device_(ctx.device) {
  keep_sums_out_of_switches();
  XT_CUDA(cudaSetDevice(device_.index));
  connect(shared_id(options_, store));
  // Of two kernels that could start, the one that other GPUs wait for goes first.
  int least = 0, greatest = 0;
  XT_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  XT_CUDA(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest));
  watcher_ = std::thread([this] { watch(); });
}

void NcclCommunicator::connect(const ncclUniqueId& id) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;  // so that a rank that never comes can be given up
  if (options_.fewest_blocks) config.minCTAs = *options_.fewest_blocks;
  if (options_.most_blocks) config.maxCTAs = *options_.most_blocks;
  Lock lock(mutex_);
  ncclResult_t result = ncclCommInitRankConfig(&comm_, size(), id, rank(), &config);
  result = settled(result, lock);
  if (result == ncclSuccess) return;
  const std::string error =
      result == ncclInProgress ? "not all of them came in time" : text_of(result);
  if (comm_) ncclCommAbort(comm_);
  fail("nccl: rank ", rank(), " cannot connect with the others: ", error);
}

// Calls return while NCCL still works on them, when it connects GPUs for the first operation of a
// kind say, and the next call must wait for that. In the pauses the lock is free for an abort. In
// progress: not done in time, or aborted.
ncclResult_t NcclCommunicator::settled(ncclResult_t result, Lock& lock) {
  const Clock::time_point deadline = Clock::now() + options_.timeout;
  while (result == ncclInProgress && Clock::now() < deadline) {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
    if (!comm_) break;
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &result);
    if (asked != ncclSuccess) return asked;
  }
  return result;
}

std::string NcclCommunicator::text_of(ncclResult_t error) const {
  const char* details = comm_ ? ncclGetLastError(comm_) : nullptr;
  std::string words = ncclGetErrorString(error);
  if (details && *details) words += text(" (", details, ")");
  return words;
}

NcclCommunicator::~NcclCommunicator() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    note_progress();
    if (!under_way_.empty()) abort_locked("this rank has given up");
  }
  stop_.notify_all();
  watcher_.join();
  disconnect();
  cudaStreamDestroy(stream_);
}

// Every rank's last operation is done when this rank's is, so none needs this one any more.
void NcclCommunicator::disconnect() {
  Lock lock(mutex_);
  if (comm_ && settled(ncclCommFinalize(comm_), lock) == ncclSuccess) {
    ncclCommDestroy(std::exchange(comm_, nullptr));
  }
  if (comm_) ncclCommAbort(std::exchange(comm_, nullptr));
}

// --- operations ----------------------------------------------------------------------------------

template <class Call>
void NcclCommunicator::enqueue(const Context& ctx, std::vector<Tensor> tensors, Call&& call) {
  Lock lock(mutex_);
  throw_failure();
  StreamPoint(stream_of(ctx)).hold_back(stream_);
  StreamPoint start(stream_);
  const ncclResult_t result = settled(call(), lock);
  if (result != ncclSuccess) abort_locked("nccl: " + text_of(result));
  throw_failure();
  under_way_.push_back({std::move(start), StreamPoint(stream_), Clock::now()});
  in_use_.push_back({++begun_, std::move(tensors)});
}

void NcclCommunicator::all_reduce(const Context& ctx, Tensor values) {
  const Elements all = elements_of(values, device_, "all_reduce");
  enqueue(ctx, {values}, [&] {
    return ncclAllReduce(all.bytes, all.bytes, all.count, nccl_type(all.dtype), ncclSum, comm_,
                         stream_);
  });
}

void NcclCommunicator::reduce_scatter(const Context& ctx, Tensor values, Tensor own) {
  check_own_part(own, values, size(), "reduce_scatter");
  const Elements all = elements_of(values, device_, "reduce_scatter");
  const Elements mine = elements_of(own, device_, "reduce_scatter");
  enqueue(ctx, {values, own}, [&] {
    return ncclReduceScatter(all.bytes, mine.bytes, mine.count, nccl_type(all.dtype), ncclSum,
                             comm_, stream_);
  });
}

void NcclCommunicator::all_gather(const Context& ctx, Tensor own, Tensor values) {
  check_own_part(own, values, size(), "all_gather");
  const Elements all = elements_of(values, device_, "all_gather");
  const Elements mine = elements_of(own, device_, "all_gather");
  enqueue(ctx, {values, own}, [&] {
    return ncclAllGather(mine.bytes, all.bytes, mine.count, nccl_type(all.dtype), comm_, stream_);
  });
}

void NcclCommunicator::broadcast(const Context& ctx, Tensor values, int root) {
  check(root >= 0 && root < size(), "broadcast: the root must be a rank below ", size(), "; got ",
        root);
  const Elements all = elements_of(values, device_, "broadcast");
  enqueue(ctx, {values}, [&] {
    return ncclBroadcast(all.bytes, all.bytes, all.count, nccl_type(all.dtype), root, comm_,
                         stream_);
  });
}

void NcclCommunicator::wait_for(const Context& ctx, int64_t count) {
  const std::lock_guard lock(mutex_);
  throw_failure();
  if (count > completed_ && !under_way_.empty()) {
    const cudaStream_t stream = stream_of(ctx);
    StreamPoint start(stream);
    under_way_[static_cast<size_t>(count - completed_ - 1)].done.hold_back(stream);
    waits_.push_back({std::move(start), StreamPoint(stream)});
  }
  // What gets the memory runs behind this point.
  while (!in_use_.empty() && in_use_.front().until <= count) in_use_.pop_front();
}

// --- watching ------------------------------------------------------------------------------------

void NcclCommunicator::watch() {
  cudaSetDevice(device_.index);
  Lock lock(mutex_);
  while (!stop_.wait_for(lock, kPause, [&] { return stopping_; })) {
    if (comm_) look();
  }
}

void NcclCommunicator::look() {
  note_progress();
  ncclResult_t error = ncclSuccess;
  ncclCommGetAsyncError(comm_, &error);
  if (error != ncclSuccess && error != ncclInProgress) {
    abort_locked("nccl: " + text_of(error));
  } else if (!under_way_.empty() && Clock::now() - under_way_.front().enqueued > options_.timeout) {
    abort_locked(text("nccl: operation ", completed_ + 1, " was not done in ",
                      options_.timeout.count() / 1000, " s: a rank is lost or does not follow"));
  }
}

void NcclCommunicator::note_progress() {
  while (!under_way_.empty() && under_way_.front().done.passed()) {
    const Operation& operation = under_way_.front();
    time_.operations += StreamPoint::seconds(operation.start, operation.done);
    under_way_.pop_front();
    ++completed_;
  }
  while (!waits_.empty() && waits_.front().end.passed()) {
    time_.waits += StreamPoint::seconds(waits_.front().start, waits_.front().end);
    waits_.pop_front();
  }
}

int64_t NcclCommunicator::completed() const {
  const std::lock_guard lock(mutex_);
  return completed_;
}

CommunicationTime NcclCommunicator::time() const {
  const std::lock_guard lock(mutex_);
  return time_;
}

std::string NcclCommunicator::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void NcclCommunicator::abort(const std::string& reason) {
  cudaSetDevice(device_.index);  // of a thread that has not met the GPU yet
  const std::lock_guard lock(mutex_);
  abort_locked(reason);
}

// Also ends the kernels that wait for other GPUs. The failure stands before that, so that whoever
// waits for them sees it.
void NcclCommunicator::abort_locked(const std::string& reason) {
  if (failure_.empty()) failure_ = reason;
  if (comm_) ncclCommAbort(std::exchange(comm_, nullptr));
}

void NcclCommunicator::throw_failure() const {
  if (!failure_.empty()) fail(failure_);
}

}  // namespace

std::unique_ptr<Communicator> nccl_communicator(const Context& ctx, const ConnectOptions& options,
                                                KeyValueStore& store) {
  return std::make_unique<NcclCommunicator>(ctx, options, store);
}

}  // namespace xtrain
