#include "distributed/ddp.h"

#include <algorithm>
#include <functional>
#include <string>

#include "core/copy.h"
#include "core/error.h"

namespace xtrain {
namespace {

// Shares begin at multiples of so many elements, so that kernels and copies find them aligned.
constexpr int64_t kShareAlignment = 16;

int64_t length_of(ArenaRange range) {
  return range.end - range.begin;
}

Tensor slice_of(const Tensor& arena, ArenaRange range) {
  return arena.slice(0, range.begin, length_of(range));
}

// What all ranks must agree on, as a number.
int64_t fingerprint(const ParameterSet& parameters, const DataParallelOptions& options) {
  std::string all = text(parameters.values().dtype(), options.zero, options.reduce_in_bf16, ' ',
                         options.bucket_bytes);
  for (const Parameter& p : parameters.list()) {
    all += text(' ', p.name, p.shape, p.offset, p.trainable);
  }
  return static_cast<int64_t>(std::hash<std::string>{}(all));
}

}  // namespace

DataParallel::DataParallel(const Context& ctx, Communicator& communicator,
                           const DataParallelOptions& options)
    : ctx_(ctx), communicator_(communicator), options_(options) {
  check_input(options.bucket_bytes > 0, "a bucket must hold at least one byte; got ",
              options.bucket_bytes);
}

void DataParallel::attach(ParameterSet& parameters) {
  Replica::attach(parameters);
  parameters_ = &parameters;
  check_same_layout();
  const Tensor& grads = parameters.grads();
  travelling_ = options_.reduce_in_bf16 ? empty(ctx_, grads.shape(), Dtype::bf16) : grads;
  // A whole number of aligned shares, so that only the last bucket has a rest.
  const int64_t shares = size() * kShareAlignment;
  const int64_t wanted = options_.bucket_bytes / size_of(travelling_.dtype());
  bucket_elements_ = std::max<int64_t>(1, (wanted + shares - 1) / shares) * shares;
  buckets_.emplace(parameters, bucket_elements_, [this](ArenaRange bucket) { start(bucket); });
  if (!options_.zero) return;
  gathering_.assign(buckets_->ranges().size(), 0);
  for (Parameter& p : parameters.list()) p.before_use = [this, &p] { await_value(p); };
}

void DataParallel::check_same_layout() {
  const int64_t mine = fingerprint(*parameters_, options_);
  const Tensor all = empty(ctx_, {size()}, Dtype::i64);
  communicator_.all_gather(ctx_, from_host(ctx_, std::vector<int64_t>{mine}, {1}), all);
  communicator_.finish(ctx_);
  const std::vector<int64_t> prints = to_host<int64_t>(ctx_, all);
  for (int r = 0; r < size(); ++r) {
    check_input(prints[r] == mine, "all ranks must train one model with the same options; rank ",
                rank(), " has others than rank ", r);
  }
}

// --- shares --------------------------------------------------------------------------------------

// What cannot be divided evenly, less than one aligned share for each rank.
ArenaRange DataParallel::rest_of(ArenaRange bucket) const {
  const int64_t shares = size() * kShareAlignment;
  return {bucket.end - length_of(bucket) % shares, bucket.end};
}

ArenaRange DataParallel::share_of(ArenaRange bucket) const {
  const int64_t n = (rest_of(bucket).begin - bucket.begin) / size();
  return {bucket.begin + rank() * n, bucket.begin + (rank() + 1) * n};
}

// With ZeRO the rests, too small to be worth dividing, are updated by every rank alike.
ArenaRanges DataParallel::owned() const {
  if (!options_.zero) return Replica::owned();
  ArenaRanges ranges;
  for (ArenaRange bucket : buckets_->ranges()) {
    ranges.push_back(share_of(bucket));
    ranges.push_back(rest_of(bucket));
  }
  std::erase_if(ranges, [](ArenaRange range) { return length_of(range) == 0; });
  return ranges;
}

ArenaRanges DataParallel::share() const {
  ArenaRanges ranges;
  for (ArenaRange bucket : buckets_->ranges()) {
    ranges.push_back(share_of(bucket));
    if (rank() == size() - 1) ranges.push_back(rest_of(bucket));
  }
  std::erase_if(ranges, [](ArenaRange range) { return length_of(range) == 0; });
  return ranges;
}

// --- gradients -----------------------------------------------------------------------------------

void DataParallel::grad_ready(Parameter& parameter) {
  if (options_.overlap) buckets_->ready(parameter);
}

void DataParallel::start(ArenaRange bucket) {
  zero_missing(bucket);
  if (options_.reduce_in_bf16) {
    copy(ctx_, slice_of(parameters_->grads(), bucket), slice_of(travelling_, bucket));
  }
  if (!options_.zero) return communicator_.all_reduce(ctx_, slice_of(travelling_, bucket));
  const ArenaRange rest = rest_of(bucket);
  const ArenaRange even{bucket.begin, rest.begin};
  if (length_of(even) > 0) {
    communicator_.reduce_scatter(ctx_, slice_of(travelling_, even),
                                 slice_of(travelling_, share_of(bucket)));
  }
  if (length_of(rest) > 0) communicator_.all_reduce(ctx_, slice_of(travelling_, rest));
}

// A gradient that this rank did not compute may be another's sum.
void DataParallel::zero_missing(ArenaRange bucket) {
  for (Parameter& p : parameters_->list()) {
    const bool inside = p.offset < bucket.end && p.offset + numel_of(p.shape) > bucket.begin;
    if (!inside || p.has_grad) continue;
    fill(ctx_, p.grad, 0.0);
    p.has_grad = true;
  }
}

void DataParallel::finish_grads() {
  buckets_->flush();
  communicator_.finish(ctx_);
  if (!options_.reduce_in_bf16) return;
  for (ArenaRange range : owned()) {
    copy(ctx_, slice_of(travelling_, range), slice_of(parameters_->grads(), range));
  }
}

void DataParallel::sum(const Context& ctx, Tensor values) {
  const Tensor flat = values.reshape({values.numel()});
  const Tensor all = empty(ctx, {size() * flat.numel()}, flat.dtype());
  communicator_.all_gather(ctx, flat, all);
  communicator_.finish(ctx);
  for (int r = 0; r < size(); ++r) {
    const auto add = r == 0 ? copy : add_into;
    add(ctx, all.slice(0, r * flat.numel(), flat.numel()), flat);
  }
}

// --- weights -------------------------------------------------------------------------------------

// The next forward pass begins with the values at the arena's end, of which this is told first.
void DataParallel::updated(ArenaRange range) {
  if (!options_.zero) return;
  const size_t i = static_cast<size_t>(range.begin / bucket_elements_);
  const ArenaRange bucket = buckets_->ranges()[i];
  if (range.begin < rest_of(bucket).begin) start_gathering(parameters_->values(), bucket);
  gathering_[i] = communicator_.begun();
}

// The buckets behind the one that a value begins in have been gathered before that one.
void DataParallel::await_value(const Parameter& parameter) {
  const size_t bucket = static_cast<size_t>(parameter.offset / bucket_elements_);
  if (bucket >= gathering_.size() || gathering_[bucket] <= awaited_) return;
  awaited_ = gathering_[bucket];
  communicator_.wait_for(ctx_, awaited_);
}

void DataParallel::gather(Tensor arena) {
  if (options_.zero) {
    for (ArenaRange bucket : buckets_->ranges()) start_gathering(arena, bucket);
  }
  communicator_.finish(ctx_);
}

void DataParallel::start_gathering(const Tensor& arena, ArenaRange bucket) {
  const ArenaRange even{bucket.begin, rest_of(bucket).begin};
  if (length_of(even) == 0) return;
  communicator_.all_gather(ctx_, slice_of(arena, share_of(bucket)), slice_of(arena, even));
}

void DataParallel::check_others() const {
  const std::string failure = communicator_.failure();
  check(failure.empty(), failure);
}

}  // namespace xtrain
