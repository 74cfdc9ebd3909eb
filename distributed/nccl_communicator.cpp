#include "distributed/nccl_communicator.h"

#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
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
    XT_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    XT_CUDA(cudaEventRecord(event_, stream));
  }
  ~StreamPoint() {
    if (event_) cudaEventDestroy(event_);
  }
  StreamPoint(StreamPoint&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  StreamPoint& operator=(StreamPoint&&) = delete;

  void hold_back(cudaStream_t stream) const { XT_CUDA(cudaStreamWaitEvent(stream, event_, 0)); }
  bool passed() const { return cudaEventQuery(event_) != cudaErrorNotReady; }

 private:
  cudaEvent_t event_ = nullptr;
};

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
  void finish(const Context& ctx) override;
  int64_t begun() const override { return begun_; }
  int64_t completed() const override;
  void abort(const std::string& reason) override;

 private:
  void connect(const ncclUniqueId& id);
  ncclResult_t settled(ncclResult_t result) const;
  template <class Call>
  void enqueue(const Context& ctx, std::vector<Tensor> tensors, Call&& call);
  void watch();
  void look();
  void abort_locked(const std::string& reason);
  void throw_failure() const;

  struct Operation {
    StreamPoint done;
    Clock::time_point start;
  };
  const ConnectOptions options_;
  const Device device_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::vector<Tensor> in_use_;  // since the last finish: their memory must not go to other work

  std::atomic<int64_t> begun_{0};

  mutable std::mutex mutex_;  // of the rest
  std::condition_variable stop_;
  std::deque<Operation> under_way_;
  int64_t completed_ = 0;
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
  ncclResult_t result = ncclCommInitRankConfig(&comm_, size(), id, rank(), &config);
  result = settled(result);
  if (result == ncclSuccess) return;
  if (comm_) ncclCommAbort(comm_);
  fail("nccl: rank ", rank(), " cannot connect with the others: ",
       result == ncclInProgress ? "not all of them came in time" : ncclGetErrorString(result));
}

// Calls return while NCCL still works on them, and the next one must wait for that. In progress:
// not done in time.
ncclResult_t NcclCommunicator::settled(ncclResult_t result) const {
  const Clock::time_point deadline = Clock::now() + options_.timeout;
  while (result == ncclInProgress && Clock::now() < deadline) {
    std::this_thread::yield();
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &result);
    if (asked != ncclSuccess) return asked;
  }
  return result;
}

NcclCommunicator::~NcclCommunicator() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (!under_way_.empty()) abort_locked("this rank has given up");
  }
  stop_.notify_all();
  watcher_.join();
  if (comm_ && settled(ncclCommFinalize(comm_)) == ncclSuccess) ncclCommDestroy(comm_);
  cudaStreamDestroy(stream_);
}

// --- operations ----------------------------------------------------------------------------------

template <class Call>
void NcclCommunicator::enqueue(const Context& ctx, std::vector<Tensor> tensors, Call&& call) {
  StreamPoint(static_cast<CudaQueue&>(*ctx.queue).stream()).hold_back(stream_);
  const std::lock_guard lock(mutex_);
  throw_failure();
  const ncclResult_t result = settled(call());
  if (result != ncclSuccess) abort_locked(text("nccl: ", ncclGetErrorString(result)));
  throw_failure();
  under_way_.push_back({StreamPoint(stream_), Clock::now()});
  ++begun_;
  in_use_.insert(in_use_.end(), tensors.begin(), tensors.end());
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

void NcclCommunicator::finish(const Context& ctx) {
  StreamPoint(stream_).hold_back(static_cast<CudaQueue&>(*ctx.queue).stream());
  in_use_.clear();  // what gets their memory runs behind this point
  const std::lock_guard lock(mutex_);
  throw_failure();
}

// --- watching ------------------------------------------------------------------------------------

void NcclCommunicator::watch() {
  cudaSetDevice(device_.index);
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, kPause, [&] { return stopping_; })) {
    if (comm_) look();
  }
}

void NcclCommunicator::look() {
  while (!under_way_.empty() && under_way_.front().done.passed()) {
    under_way_.pop_front();
    ++completed_;
  }
  ncclResult_t error = ncclSuccess;
  ncclCommGetAsyncError(comm_, &error);
  if (error != ncclSuccess && error != ncclInProgress) {
    abort_locked(text("nccl: ", ncclGetErrorString(error)));
  } else if (!under_way_.empty() && Clock::now() - under_way_.front().start > options_.timeout) {
    abort_locked(text("nccl: operation ", completed_ + 1, " was not done in ",
                      options_.timeout.count() / 1000, " s: a rank is lost or does not follow"));
  }
}

int64_t NcclCommunicator::completed() const {
  const std::lock_guard lock(mutex_);
  return completed_;
}

void NcclCommunicator::abort(const std::string& reason) {
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
