#include <cmath>
#include <limits>

#include "core/cuda/reduce.h"
#include "core/cuda/row.h"
#include "core/error.h"
#include "ops/cross_entropy/cross_entropy_kernels.h"

namespace xtrain {
namespace {

// --- exponentials --------------------------------------------------------------------------------

// What a bf16 result can show is right to the last bit with one instruction, 2^x, whose error is
// far below it.
template <class T>
__device__ Accumulator<T> exponential(Accumulator<T> x) {
  return exp(x);
}
template <>
__device__ float exponential<BFloat16>(float x) {
  constexpr float kLog2E = 1.44269504f;
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * kLog2E));
  return y;
}

// The sum of exponentials relative to the largest element met so far, which starts finite: the
// difference of two infinities would be NaN.
template <class T>
struct OnlineSum {
  using A = Accumulator<T>;
  A largest = std::numeric_limits<A>::lowest();
  A sum = 0;

  __device__ void add(const Values<T>& x) {
    A next = largest;
#pragma unroll
    for (int i = 0; i < kPackSize<T>; ++i) next = Maximum()(next, x.at[i]);
    sum *= exponential<T>(largest - next);
#pragma unroll
    for (int i = 0; i < kPackSize<T>; ++i) sum += exponential<T>(x.at[i] - next);
    largest = next;
  }

  // That of the block; every thread gets it.
  __device__ OnlineSum over_block(A* scratch) const {
    OnlineSum all;
    all.largest = block_reduce(largest, Maximum(), largest, scratch);
    all.sum = block_reduce(sum * exponential<T>(largest - all.largest), Add(), A{0}, scratch);
    return all;
  }
};

// --- rows ----------------------------------------------------------------------------------------

// A row of logits seen in packs that begin at multiples of 16 bytes, as the row itself may not. The
// first pack may begin before the row and the last one end behind it.
template <class T>
class LogitRow {
 public:
  __device__ LogitRow(const LogitRows& rows, const T* logits, int64_t row)
      : x_(logits + row * rows.columns),
        skew_(static_cast<int>(reinterpret_cast<uintptr_t>(x_) / sizeof(T) % kPackSize<T>)),
        vocab_(rows.vocab),
        columns_(rows.columns) {}

  __device__ int packs() const {
    return static_cast<int>(ceil_div(skew_ + columns_, kPackSize<T>));
  }
  __device__ Accumulator<T> at(int32_t column) const {
    return static_cast<Accumulator<T>>(x_[column]);
  }
  // The thread that holds the column when packs are dealt out in turn.
  __device__ int thread_of(int32_t column) const {
    return static_cast<int>((skew_ + int64_t{column}) / kPackSize<T> % blockDim.x);
  }

  // Elements outside of the classes are -infinity, which adds nothing to a sum of exponentials.
  __device__ Pack<T> load(int pack) const {
    const int64_t first = first_of(pack);
    if (first >= 0 && first + kPackSize<T> <= vocab_) return load_pack(x_ + first);
    Pack<T> elements;
#pragma unroll
    for (int i = 0; i < kPackSize<T>; ++i) {
      const bool is_class = first + i >= 0 && first + i < vocab_;
      elements.value[i] = is_class ? x_[first + i] : static_cast<T>(-INFINITY);
    }
    return elements;
  }

  // Into the same place of a row of gradients; elements outside of the classes become 0.
  __device__ void store(T* dx, int pack, Values<T> values) const {
    const int64_t first = first_of(pack);
    const bool aligned = reinterpret_cast<uintptr_t>(dx + first) % sizeof(Pack<T>) == 0;
    if (first >= 0 && first + kPackSize<T> <= vocab_ && aligned) {
      return store_pack(dx + first, pack_of<T>(values));
    }
#pragma unroll
    for (int i = 0; i < kPackSize<T>; ++i) {
      const int64_t column = first + i;
      if (column >= vocab_) values.at[i] = 0;
      if (column >= 0 && column < columns_) dx[column] = static_cast<T>(values.at[i]);
    }
  }

 private:
  __device__ int64_t first_of(int pack) const {
    return int64_t{pack} * kPackSize<T> - skew_;
  }

  const T* x_;
  int skew_;
  int64_t vocab_, columns_;
};

// The packs of a thread, pack threadIdx.x + k blockDim.x for k = 0, 1, ...: the first kHeld stay in
// registers, the next ones in the block's shared memory, each written and read by its thread alone,
// and what finds no room is read from memory a second time.
inline constexpr int kHeld = 4;

template <class T>
class RowCache {
 public:
  __device__ RowCache(const LogitRow<T>& row, int shared_packs)
      : row_(row), packs_(row.packs()), shared_packs_(shared_packs) {}

  // Reads the row: f(values of a pack). kKeep false: nothing will be asked for again.
  template <bool kKeep, class F>
  __device__ void read(F&& f) {
    read_batch(0, held_, f);
    for (int k = kHeld; index(k) < packs_; k += kHeld) {
      Pack<T> batch[kHeld];
      read_batch(k, batch, f);
      if constexpr (kKeep) {
#pragma unroll
        for (int i = 0; i < kHeld; ++i) {
          if (index(k + i) < packs_ && k + i < kHeld + shared_packs_) *place(k + i) = batch[i];
        }
      }
    }
  }

  // f(pack, its values) once more.
  template <class F>
  __device__ void walk(F&& f) const {
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      if (index(k) < packs_) f(index(k), values_of(held_[k]));
    }
#pragma unroll 2
    for (int k = kHeld; index(k) < packs_; ++k) {
      f(index(k), values_of(k < kHeld + shared_packs_ ? *place(k) : row_.load(index(k))));
    }
  }

 private:
  __device__ static int index(int k) {
    return threadIdx.x + k * blockDim.x;
  }
  __device__ static Pack<T>* place(int k) {
    extern __shared__ uint4 memory[];
    return reinterpret_cast<Pack<T>*>(memory) + index(k - kHeld);
  }

  // Asks for all before it waits for the first.
  template <class F>
  __device__ void read_batch(int k, Pack<T> (&batch)[kHeld], F&& f) const {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (index(k + i) < packs_) batch[i] = row_.load(index(k + i));
    }
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (index(k + i) < packs_) f(values_of(batch[i]));
    }
  }

  LogitRow<T> row_;
  int packs_, shared_packs_;
  Pack<T> held_[kHeld];
};

template <class T>
__device__ Accumulator<T> loss_of(const OnlineSum<T>& all, Accumulator<T> target_logit) {
  return log(all.sum) + (all.largest - target_logit);
}

constexpr int kMostThreads = 1024;

// One block a row.
template <class T>
__global__ void __launch_bounds__(kMostThreads)
    losses_of_rows(LogitRows rows, const T* logits, Accumulator<T>* losses) {
  __shared__ Accumulator<T> scratch[kWarp];
  for (int64_t i = blockIdx.x; i < rows.rows; i += gridDim.x) {
    const int32_t target = rows.targets[i];
    if (!rows.counts(target)) {
      if (threadIdx.x == 0) losses[i] = 0;
      continue;
    }
    const LogitRow<T> row(rows, logits, i);
    OnlineSum<T> own;
    RowCache<T>(row, 0).template read<false>([&](const Values<T>& x) { own.add(x); });
    const OnlineSum<T> all = own.over_block(scratch);
    if (threadIdx.x == 0) losses[i] = loss_of<T>(all, row.at(target));
  }
}

template <class T>
__device__ void clear_row(const LogitRow<T>& row, T* dx) {
  for (int p = threadIdx.x; p < row.packs(); p += blockDim.x) row.store(dx, p, Values<T>{});
}

// One block a row, which it reads once and writes once.
template <class T>
__global__ void __launch_bounds__(kMostThreads)
    gradients_of_rows(LogitRows rows, const T* logits, int shared_packs, const Accumulator<T>* dsum,
                      Accumulator<T>* losses, T* dlogits) {
  using A = Accumulator<T>;
  __shared__ A scratch[kWarp];
  const A scale = dsum ? *dsum : A{1};
  for (int64_t i = blockIdx.x; i < rows.rows; i += gridDim.x) {
    const LogitRow<T> row(rows, logits, i);
    T* dx = dlogits + i * rows.columns;
    const int32_t target = rows.targets[i];
    if (!rows.counts(target)) {
      clear_row(row, dx);
      if (threadIdx.x == 0) losses[i] = 0;
      continue;
    }
    const A target_logit = row.at(target);
    __syncwarp();  // no lane may overwrite it before all have read it
    RowCache<T> cache(row, shared_packs);
    OnlineSum<T> own;
    cache.template read<true>([&](const Values<T>& x) { own.add(x); });
    const OnlineSum<T> all = own.over_block(scratch);
    const A inverse_sum = A{1} / all.sum, factor = scale * inverse_sum;
    cache.walk([&](int pack, Values<T> x) {
#pragma unroll
      for (int j = 0; j < kPackSize<T>; ++j) {
        x.at[j] = factor * exponential<T>(x.at[j] - all.largest);
      }
      row.store(dx, pack, x);
    });
    if (threadIdx.x == row.thread_of(target)) {
      const A probability = exponential<T>(target_logit - all.largest) * inverse_sum;
      dx[target] = static_cast<T>(scale * (probability - A{1}));
    }
    if (threadIdx.x == 0) losses[i] = loss_of<T>(all, target_logit);
  }
}

// --- launches ------------------------------------------------------------------------------------

struct RowLaunch {
  int threads = 0;
  int shared_packs = 0;  // of a thread
  int64_t shared_bytes() const { return int64_t{threads} * shared_packs * 16; }
};

// As few threads as hold the row in registers. A longer row takes half a multiprocessor, so that
// one row is read while another is written, or all of it.
template <class T>
RowLaunch row_launch(const Cuda& cuda, int64_t columns) {
  constexpr int kHalf = kMostThreads / 2, kAll = kMostThreads;
  constexpr int64_t kReserved = 1024;  // what each block takes for itself
  const int64_t packs = ceil_div(columns + kPackSize<T> - 1, kPackSize<T>);
  if (packs <= kHeld * kHalf) {
    const int64_t warps = ceil_div(packs, kHeld * kWarp);
    return {static_cast<int>(std::max<int64_t>(1, warps)) * kWarp, 0};
  }
  const auto shared_packs = [&](int threads, int64_t bytes) {
    const int64_t wanted = ceil_div(packs, threads) - kHeld;
    return static_cast<int>(std::max<int64_t>(0, std::min(wanted, bytes / (16 * threads))));
  };
  const int64_t bytes = gpu_of(cuda).shared_bytes_per_block;
  const int half = shared_packs(kHalf, bytes / 2 - kReserved);
  if (packs <= int64_t{kHalf} * (kHeld + half)) return {kHalf, half};
  return {kAll, shared_packs(kAll, bytes - kReserved)};
}

template <class T>
void check_columns(int64_t columns) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max() - kPackSize<T>;
  check(columns <= kMost, "cross_entropy: a row of logits must have at most ", kMost,
        " columns; got ", columns);
}

constexpr int kSumThreads = 1024;

// Neighbouring threads read neighbouring values; each sums its own in order.
template <class A>
__global__ void sum_of_losses(int64_t n, const A* losses, A* sum) {
  __shared__ double scratch[kWarp];
  double own = 0.0;
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < n; i += kSumThreads) own += static_cast<double>(losses[i]);
  const double all = block_reduce(own, Add(), 0.0, scratch);
  if (threadIdx.x == 0) *sum = static_cast<A>(all);
}

__global__ void count_of_targets(int64_t n, const int32_t* targets, int32_t ignore_index,
                                 int64_t* count) {
  __shared__ int64_t scratch[kWarp];
  int64_t own = 0;
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < n; i += kSumThreads) own += targets[i] != ignore_index;
  const int64_t all = block_reduce(own, Add(), int64_t{0}, scratch);
  if (threadIdx.x == 0) *count = all;
}

// The first `packs` packs are aligned, the rest goes one by one.
template <class T>
__global__ void scale_elements(int64_t n, int64_t packs, const Accumulator<T>* factor, T* x) {
  using A = Accumulator<T>;
  const A f = *factor;
  if (f == A{1}) return;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t p = first; p < packs; p += stride) {
    Values<T> values = values_of(load_pack(x + p * kPackSize<T>));
#pragma unroll
    for (int i = 0; i < kPackSize<T>; ++i) values.at[i] *= f;
    store_pack(x + p * kPackSize<T>, pack_of<T>(values));
  }
  for (int64_t i = packs * kPackSize<T> + first; i < n; i += stride) {
    x[i] = static_cast<T>(static_cast<A>(x[i]) * f);
  }
}

}  // namespace

void count_targets(const Cuda& cuda, int64_t n, const int32_t* targets, int32_t ignore_index,
                   int64_t* count) {
  XT_LAUNCH(cuda, (LaunchShape{1, kSumThreads}), count_of_targets, n, targets, ignore_index, count);
}

template <class T>
void cross_entropy_losses(const Cuda& cuda, const LogitRows& rows, const T* logits,
                          Accumulator<T>* losses) {
  check_columns<T>(rows.columns);
  const RowLaunch shape = row_launch<T>(cuda, rows.columns);
  XT_LAUNCH(cuda, (LaunchShape{grid_for(rows.rows, 1), dim3(shape.threads)}), (losses_of_rows<T>),
            rows, logits, losses);
}

template <class T>
void cross_entropy_gradients(const Cuda& cuda, const LogitRows& rows, const T* logits,
                             const Accumulator<T>* dsum, Accumulator<T>* losses, T* dlogits) {
  check_columns<T>(rows.columns);
  const RowLaunch shape = row_launch<T>(cuda, rows.columns);
  XT_LAUNCH(cuda, (LaunchShape{grid_for(rows.rows, 1), dim3(shape.threads), shape.shared_bytes()}),
            (gradients_of_rows<T>), rows, logits, shape.shared_packs, dsum, losses, dlogits);
}

// A factor of 1 is the usual one: a grid of few blocks is soon through with it.
template <class T>
void scale_in_place(const Cuda& cuda, int64_t n, const Accumulator<T>* factor, T* x) {
  constexpr int kThreads = 512;
  const bool aligned = reinterpret_cast<uintptr_t>(x) % sizeof(Pack<T>) == 0;
  const int64_t packs = aligned ? n / kPackSize<T> : 0;
  const int64_t blocks = std::min<int64_t>(ceil_div(aligned ? packs + 1 : n, kThreads),
                                           4 * gpu_of(cuda).multiprocessors);
  XT_LAUNCH(cuda, (LaunchShape{grid_for(blocks, 1), kThreads}), (scale_elements<T>), n, packs,
            factor, x);
}

template <class A>
void sum_losses(const Cuda& cuda, int64_t n, const A* losses, A* sum) {
  XT_LAUNCH(cuda, (LaunchShape{1, kSumThreads}), (sum_of_losses<A>), n, losses, sum);
}

template void sum_losses(const Cuda&, int64_t, const double*, double*);
template void sum_losses(const Cuda&, int64_t, const float*, float*);

#define XT_CROSS_ENTROPY(T)                                                                     \
  template void cross_entropy_losses(const Cuda&, const LogitRows&, const T*, Accumulator<T>*); \
  template void cross_entropy_gradients(const Cuda&, const LogitRows&, const T*,                \
                                        const Accumulator<T>*, Accumulator<T>*, T*);            \
  template void scale_in_place(const Cuda&, int64_t, const Accumulator<T>*, T*);
XT_CROSS_ENTROPY(double)
XT_CROSS_ENTROPY(float)
XT_CROSS_ENTROPY(BFloat16)
#undef XT_CROSS_ENTROPY

}  // namespace xtrain
