#include "distributed/cpu_communicator.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <utility>

#include "core/dispatch_any.h"
#include "core/error.h"

namespace xtrain {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The type in which T is summed.
template <class T>
using SumOf = std::conditional_t<std::is_same_v<T, BFloat16>, float, T>;

// sum = terms[0] + terms[1] + ..., in this order; sum may be one of them.
template <class T>
void sum_in_order(const std::vector<const T*>& terms, int64_t count, T* sum) {
  constexpr int64_t kBlock = 2048;  // stays in the nearest cache
  std::array<SumOf<T>, kBlock> block;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    std::copy_n(terms[0] + begin, n, block.begin());
    for (size_t t = 1; t < terms.size(); ++t) {
      const T* term = terms[t] + begin;
      for (int64_t i = 0; i < n; ++i) block[i] += static_cast<SumOf<T>>(term[i]);
    }
    for (int64_t i = 0; i < n; ++i) sum[begin + i] = static_cast<T>(block[i]);
  }
}

}  // namespace

// --- the thread ----------------------------------------------------------------------------------

// The rank's share of elements that need not divide evenly: the last ones may be short or empty.
Elements CpuCommunicator::part_of(const Elements& values, int rank) const {
  const int64_t n = (values.count + size() - 1) / size();
  return values.part(rank * n, (rank + 1) * n);
}

// own = the sum over all ranks of the own part of their values.
void CpuCommunicator::reduce(const Elements& values, const Elements& own) {
  const Elements mine = part_of(values, rank());
  const int64_t bytes = static_cast<int64_t>(mine.span().size());
  if (static_cast<int64_t>(received_.size()) < size() * bytes) received_.resize(size() * bytes);
  Exchange::Outgoing out(size());
  Exchange::Incoming in(size());
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    out[r] = part_of(values, r).span();
    in[r] = std::span(received_).subspan(r * bytes, bytes);
  }
  exchange_->run(out, in);
  dispatch_any(values.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    std::vector<const T*> terms(size());
    for (int r = 0; r < size(); ++r) {
      terms[r] = reinterpret_cast<const T*>(r == rank() ? mine.bytes : in[r].data());
    }
    sum_in_order(terms, mine.count, reinterpret_cast<T*>(own.bytes));
  });
}

// values = every rank's own, one after the other.
void CpuCommunicator::gather(const Elements& own, const Elements& values) {
  const Elements mine = part_of(values, rank());
  if (mine.bytes != own.bytes && mine.count > 0) {
    std::memcpy(mine.bytes, own.bytes, own.span().size());
  }
  Exchange::Outgoing out(size());
  Exchange::Incoming in(size());
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    out[r] = mine.span();
    in[r] = part_of(values, r).span();
  }
  exchange_->run(out, in);
}

void CpuCommunicator::send_from(const Elements& values, int root) {
  Exchange::Outgoing out(size());
  Exchange::Incoming in(size());
  if (rank() == root) {
    std::fill(out.begin(), out.end(), values.span());
    out[root] = {};
  } else {
    in[root] = values.span();
  }
  exchange_->run(out, in);
}

void CpuCommunicator::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !pending_.empty(); });
    if (stopping_) return;
    Operation& operation = pending_.front();  // stays in place while others are added behind it
    const bool failed = !failure_.empty();
    lock.unlock();
    const Clock::time_point start = Clock::now();
    std::string failure;
    try {
      if (!failed) operation.run();
      if (!failed) ++completed_;
    } catch (const std::exception& error) {
      failure = error.what();
    }
    operation = {};  // lets go of the tensors before anyone hears that it is done
    lock.lock();
    time_.operations += seconds_since(start);
    if (failure_.empty()) failure_ = failure;
    pending_.pop_front();
    ++ended_;
    changed_.notify_all();
  }
}

// --- the caller's side ---------------------------------------------------------------------------

CpuCommunicator::CpuCommunicator(std::unique_ptr<Exchange> exchange)
    : exchange_(std::move(exchange)), thread_([this] { work(); }) {}

CpuCommunicator::~CpuCommunicator() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (!pending_.empty()) exchange_->abort("this rank has given up");
  }
  changed_.notify_all();
  thread_.join();
}

void CpuCommunicator::all_reduce(const Context&, Tensor values) {
  const Elements all = elements_of(values, Device{}, "all_reduce");
  enqueue(
      [this, all] {
        const Elements own = part_of(all, rank());
        reduce(all, own);
        gather(own, all);
      },
      {std::move(values)});
}

void CpuCommunicator::reduce_scatter(const Context&, Tensor values, Tensor own) {
  check_own_part(own, values, size(), "reduce_scatter");
  const Elements all = elements_of(values, Device{}, "reduce_scatter");
  const Elements mine = elements_of(own, Device{}, "reduce_scatter");
  enqueue([this, all, mine] { reduce(all, mine); }, {std::move(values), std::move(own)});
}

void CpuCommunicator::all_gather(const Context&, Tensor own, Tensor values) {
  check_own_part(own, values, size(), "all_gather");
  const Elements all = elements_of(values, Device{}, "all_gather");
  const Elements mine = elements_of(own, Device{}, "all_gather");
  enqueue([this, all, mine] { gather(mine, all); }, {std::move(values), std::move(own)});
}

void CpuCommunicator::broadcast(const Context&, Tensor values, int root) {
  check(root >= 0 && root < size(), "broadcast: the root must be a rank below ", size(), "; got ",
        root);
  const Elements all = elements_of(values, Device{}, "broadcast");
  enqueue([this, all, root] { send_from(all, root); }, {std::move(values)});
}

void CpuCommunicator::enqueue(std::function<void()> operation, std::vector<Tensor> tensors) {
  {
    const std::lock_guard lock(mutex_);
    throw_failure();
    pending_.push_back({std::move(operation), std::move(tensors)});
    ++begun_;
  }
  changed_.notify_all();
}

void CpuCommunicator::wait_for(const Context&, int64_t count) {
  std::unique_lock lock(mutex_);
  const Clock::time_point start = Clock::now();
  changed_.wait(lock, [&] { return ended_ >= count; });
  time_.waits += seconds_since(start);
  throw_failure();
}

CommunicationTime CpuCommunicator::time() const {
  const std::lock_guard lock(mutex_);
  return time_;
}

std::string CpuCommunicator::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void CpuCommunicator::throw_failure() const {
  if (!failure_.empty()) fail(failure_);
}

void CpuCommunicator::abort(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = reason;
  }
  exchange_->abort(reason);
}

}  // namespace xtrain
