#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/cuda/exponential.h"
#include "core/cuda/reduce.h"
#include "core/cuda/row.h"
#include "core/error.h"
#include "core/tensor.h"
#include "ops/cross_entropy/cross_entropy_kernels.h"

namespace xtrain {
namespace {

// --- packs ---------------------------------------------------------------------------------------

template <class T>
__device__ Accumulator<T> largest_in(const Pack<T>& pack) {
  const Values<T> x = values_of(pack);
  Accumulator<T> largest = x.at[0];
#pragma unroll
  for (int i = 1; i < kPackSize<T>; ++i) largest = Maximum()(largest, x.at[i]);
  return largest;
}
template <>
__device__ float largest_in(const Pack<BFloat16>& pack) {  // two at a time
  const __nv_bfloat162* pair = reinterpret_cast<const __nv_bfloat162*>(&pack);
  const __nv_bfloat162 largest = __hmax2(__hmax2(pair[0], pair[1]), __hmax2(pair[2], pair[3]));
  return fmaxf(__low2float(largest), __high2float(largest));
}

// --- rows ----------------------------------------------------------------------------------------

// The classes of a row: whole packs at multiples of 16 bytes, and up to two handfuls of edge
// elements before and behind them, each of which belongs to one thread.
template <class T>
struct RowParts {
  const T* x;
  int head, packs, edges;

  __device__ RowParts(const LogitRows& rows, const T* logits, int64_t row)
      : x(logits + row * rows.columns) {
    const int skew = static_cast<int>(reinterpret_cast<uintptr_t>(x) / sizeof(T) % kPackSize<T>);
    const int vocab = static_cast<int>(rows.vocab());
    head = min((kPackSize<T> - skew) % kPackSize<T>, vocab);
    packs = (vocab - head) / kPackSize<T>;
    edges = vocab - packs * kPackSize<T>;
  }

  __device__ int column_of_pack(int pack) const { return head + pack * kPackSize<T>; }
  __device__ bool has_edge() const { return threadIdx.x < edges; }
  __device__ int column_of_edge() const {
    return threadIdx.x < head ? threadIdx.x : threadIdx.x + packs * kPackSize<T>;
  }
  __device__ Pack<T> load(int pack) const { return load_pack(x + column_of_pack(pack)); }
  __device__ Accumulator<T> load_edge() const {
    return static_cast<Accumulator<T>>(x[column_of_edge()]);
  }
  // The thread that writes a column.
  __device__ int thread_of(int column) const {
    const int past_head = column - head, pack = past_head / kPackSize<T>;
    if (past_head < 0) return column;
    return pack < packs ? pack % blockDim.x : past_head - packs * kPackSize<T> + head;
  }
};

// The sum of exponentials relative to the largest element met so far, which starts finite: the
// difference of two infinities would be NaN.
template <class T>
struct OnlineSum {
  using A = Accumulator<T>;
  A largest = std::numeric_limits<A>::lowest();
  A sum = 0;

  // Makes room for elements up to `next`.
  __device__ void raise(A next) {
    next = Maximum()(largest, next);
    sum *= exponential<T>(largest - next);
    largest = next;
  }
  // Elements that are not above the largest.
  __device__ void add(A x) { sum += exponential<T>(x - largest); }
  __device__ void add(const Pack<T>& pack) {
    const Values<T> x = values_of(pack);
    A part[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < kPackSize<T>; ++i) part[i % 2] += exponential<T>(x.at[i] - largest);
    sum += part[0] + part[1];
  }

  // That of all threads of the row; each gets it.
  __device__ OnlineSum over_row(A* scratch) const {
    OnlineSum all;
    all.largest = block_reduce(largest, Maximum(), largest, scratch);
    all.sum = block_reduce(sum * exponential<T>(largest - all.largest), Add(), A{0}, scratch);
    return all;
  }
  __device__ A loss(A target_logit) const {
    return log(sum) + (largest - target_logit);
  }
};

// The packs of a thread: threadIdx.x + k blockDim.x for k = 0, 1, ... Asks for kBatch of them, from
// number k on, before it waits for the first.
template <int kBatch, class T>
__device__ void load_batch(const RowParts<T>& row, int k, Pack<T> (&batch)[kBatch]) {
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    const int pack = threadIdx.x + (k + i) * blockDim.x;
    if (pack < row.packs) batch[i] = row.load(pack);
  }
}

// f(i) for the packs of a batch that exist.
template <int kBatch, class T, class F>
__device__ void for_batch(const RowParts<T>& row, int k, F&& f) {
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    if (threadIdx.x + (k + i) * blockDim.x < row.packs) f(i);
  }
}

template <int kBatch, class T>
__device__ void add_batch(const RowParts<T>& row, int k, const Pack<T> (&batch)[kBatch],
                          OnlineSum<T>& own) {
  Accumulator<T> largest = own.largest;
  for_batch<kBatch>(row, k, [&](int i) { largest = Maximum()(largest, largest_in(batch[i])); });
  own.raise(largest);
  for_batch<kBatch>(row, k, [&](int i) { own.add(batch[i]); });
}

// --- losses --------------------------------------------------------------------------------------

constexpr int kBatch = 4;
constexpr int kMostThreads = 1024;

// The threads of one threadIdx.y share a row.
__device__ int64_t row_of_thread() {
  return int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
}

template <class T>
__global__ void __launch_bounds__(kMostThreads)
    losses_of_rows(LogitRows rows, const T* logits, Accumulator<T>* losses) {
  using A = Accumulator<T>;
  __shared__ Accumulator<T> scratch[kWarp];
  const int64_t i = row_of_thread();
  if (i >= rows.rows) return;
  const RowParts<T> row(rows, logits, i);
  // Two batches take turns: one is on its way while the other is added. The first is asked for
  // before the target is known, which would cost the time of one more access.
  Pack<T> even[kBatch], odd[kBatch];
  load_batch<kBatch>(row, 0, even);
  const int32_t target = rows.targets[i];
  if (!rows.counts(target)) {
    if (threadIdx.x == 0) losses[i] = 0;
    return;
  }
  const A target_logit = static_cast<A>(row.x[target]);
  OnlineSum<T> own;
  for (int k = 0; threadIdx.x + k * blockDim.x < row.packs; k += 2 * kBatch) {
    load_batch<kBatch>(row, k + kBatch, odd);
    add_batch<kBatch>(row, k, even, own);
    load_batch<kBatch>(row, k + 2 * kBatch, even);
    add_batch<kBatch>(row, k + kBatch, odd, own);
  }
  if (row.has_edge()) {
    own.raise(row.load_edge());
    own.add(row.load_edge());
  }
  const OnlineSum<T> all = own.over_row(scratch);
  if (threadIdx.x == 0) losses[i] = all.loss(target_logit);
}

// --- losses and gradients ------------------------------------------------------------------------

// Writes a row of gradients.
template <class T>
struct GradientRow {
  T* dx;
  bool aligned;

  __device__ GradientRow(const RowParts<T>& row, T* address)
      : dx(address),
        aligned(reinterpret_cast<uintptr_t>(address + row.head) % sizeof(Pack<T>) == 0) {}

  __device__ void store(int column, const Values<T>& values) const {
    if (aligned) {
      store_pack(dx + column, pack_of<T>(values));
      return;
    }
#pragma unroll
    for (int i = 0; i < kPackSize<T>; ++i) dx[column + i] = static_cast<T>(values.at[i]);
  }
  // From a column to the end of the row.
  __device__ void clear(int64_t from, int64_t columns) const {
    for (int64_t column = from + threadIdx.x; column < columns; column += blockDim.x) {
      dx[column] = T(0);
    }
  }
};

template <class T>
__device__ void clear_row(const LogitRows& rows, const RowParts<T>& row,
                          const GradientRow<T>& out) {
  for (int p = threadIdx.x; p < row.packs; p += blockDim.x) {
    out.store(row.column_of_pack(p), Values<T>{});
  }
  if (row.has_edge()) out.dx[row.column_of_edge()] = T(0);
  out.clear(rows.vocab(), rows.columns);
}

// What a row of gradients is computed with.
template <class T>
struct GradientScale {
  using A = Accumulator<T>;
  A largest, factor;

  __device__ Values<T> of(const Pack<T>& pack) const {
    Values<T> x = values_of(pack);
#pragma unroll
    for (int i = 0; i < kPackSize<T>; ++i) x.at[i] = of(x.at[i]);
    return x;
  }
  __device__ A of(A x) const {
    return factor * exponential<T>(x - largest);
  }
};

// One walk over the logits and one over what is kept of them: the first kHeld packs of a thread
// stay in registers, the next `shared_packs` in the block's shared memory, each written and read by
// its own thread, and what finds no room is read from memory a second time.
template <class T, int kHeld>
__global__ void __launch_bounds__(kMostThreads)
    gradients_of_rows(LogitRows rows, const T* logits, int shared_packs, const Accumulator<T>* dsum,
                      Accumulator<T>* losses, T* dlogits) {
  using A = Accumulator<T>;
  extern __shared__ uint4 memory[];
  __shared__ A scratch[kWarp];
  Pack<T>* shared = reinterpret_cast<Pack<T>*>(memory) + threadIdx.x;
  const int64_t i = row_of_thread();
  if (i >= rows.rows) return;
  const RowParts<T> row(rows, logits, i);
  const GradientRow<T> out(row, dlogits + i * rows.columns);
  // Before the target is known, which would cost the time of one more access.
  Pack<T> held[kHeld];
  load_batch<kHeld>(row, 0, held);
  const A edge = row.has_edge() ? row.load_edge() : A{0};
  const A scale = dsum ? *dsum : A{1};
  const int32_t target = rows.targets[i];
  if (!rows.counts(target)) {
    clear_row(rows, row, out);
    if (threadIdx.x == 0) losses[i] = 0;
    return;
  }
  const A target_logit = static_cast<A>(row.x[target]);

  OnlineSum<T> own;
  add_batch<kHeld>(row, 0, held, own);
  for (int k = kHeld; threadIdx.x + k * blockDim.x < row.packs; k += kBatch) {
    Pack<T> batch[kBatch];
    load_batch<kBatch>(row, k, batch);
    for_batch<kBatch>(row, k, [&](int j) {
      const int slot = k + j - kHeld;
      if (slot < shared_packs) shared[slot * blockDim.x] = batch[j];
    });
    add_batch<kBatch>(row, k, batch, own);
  }
  if (row.has_edge()) {
    own.raise(edge);
    own.add(edge);
  }
  const OnlineSum<T> all = own.over_row(scratch);
  __syncwarp();  // all lanes have read the target before one overwrites it

  const A inverse_sum = A{1} / all.sum;
  const GradientScale<T> gradient{all.largest, scale * inverse_sum};
  for_batch<kHeld>(row, 0, [&](int j) {
    out.store(row.column_of_pack(threadIdx.x + j * blockDim.x), gradient.of(held[j]));
  });
#pragma unroll 2
  for (int k = kHeld; threadIdx.x + k * blockDim.x < row.packs; ++k) {
    const int pack = threadIdx.x + k * blockDim.x, slot = k - kHeld;
    const Pack<T> x = slot < shared_packs ? shared[slot * blockDim.x] : row.load(pack);
    out.store(row.column_of_pack(pack), gradient.of(x));
  }
  if (row.has_edge()) out.dx[row.column_of_edge()] = static_cast<T>(gradient.of(edge));
  out.clear(rows.vocab(), rows.columns);
  if (threadIdx.x == row.thread_of(target)) {
    const A probability = exponential<T>(target_logit - all.largest) * inverse_sum;
    out.dx[target] = static_cast<T>(scale * (probability - A{1}));
  }
  if (threadIdx.x == 0) losses[i] = all.loss(target_logit);
}

// --- launches ------------------------------------------------------------------------------------

constexpr int kRowsOfWarps = 8;  // rows of a block when each needs one warp only

LaunchShape shape_of_rows(int64_t rows, int threads, int64_t shared_bytes = 0) {
  const int of_block = threads == kWarp ? kRowsOfWarps : 1;
  const int64_t blocks = ceil_div(rows, of_block);
  check(blocks <= kMostBlocks, "cross_entropy: there must be at most ", kMostBlocks,
        " rows of logits; got ", rows);
  return {grid_for(rows, of_block), dim3(threads, of_block), shared_bytes};
}

// Whole warps with at most `packs` packs a thread.
int threads_for(int64_t row_packs, int packs) {
  return static_cast<int>(std::max<int64_t>(1, ceil_div(row_packs, packs * kWarp)) * kWarp);
}

// How a row of gradients is shared out.
struct RowLaunch {
  int threads;
  int held;  // packs of a thread in registers
  int shared_packs = 0;

  int64_t shared_bytes() const { return int64_t{threads} * shared_packs * 16; }
};

// As few threads as hold the row in registers, since reductions over many take long. A longer row
// takes a quarter, half or all of a multiprocessor; the less it takes, the more rows are read while
// others are written.
template <class T>
RowLaunch row_launch(const Cuda& cuda, int64_t columns) {
  constexpr int64_t kReserved = 1024;  // bytes that each block takes for itself
  const int64_t packs = ceil_div(columns, kPackSize<T>);
  const int64_t bytes = gpu_of(cuda).shared_bytes_per_block;
  if (packs <= 4 * kMostThreads / 2) return {threads_for(packs, 4), 4};
  const auto with = [&](int threads, int held) {
    const int64_t room = (bytes * threads / kMostThreads - kReserved) / (16 * threads);
    const int64_t wanted = ceil_div(packs, threads) - held;
    return RowLaunch{threads, held, static_cast<int>(std::clamp<int64_t>(wanted, 0, room))};
  };
  const auto fits = [&](const RowLaunch& l) {
    return packs <= int64_t{l.threads} * (l.held + l.shared_packs);
  };
  const RowLaunch quarter = with(kMostThreads / 4, 4), half = with(kMostThreads / 2, 2);
  return fits(quarter) ? quarter : fits(half) ? half : with(kMostThreads, 4);
}

void check_columns(int64_t columns) {
  constexpr int64_t kMost = int64_t{1} << 30;
  check(columns <= kMost, "cross_entropy: a row of logits must have at most ", kMost,
        " columns; got ", columns);
}

// --- totals --------------------------------------------------------------------------------------

constexpr int kTotalThreads = 256, kMostTotalBlocks = 128;
constexpr int kHandful = 4;  // rows that a thread asks for at a time
static_assert(kMostTotalBlocks <= kTotalThreads);

struct RowTotals {
  double sum = 0.0;
  int64_t count = 0;

  // Those of all threads of the block; each gets them.
  __device__ RowTotals over_block() const {
    __shared__ double sums[kWarp];
    __shared__ int64_t counts[kWarp];
    return {block_reduce(sum, Add(), 0.0, sums), block_reduce(count, Add(), int64_t{0}, counts)};
  }
};

// Neighbouring threads read neighbouring values; each sums its own in order. It asks for a handful
// before it looks at the first, since a possible report stands between them.
template <class A>
__device__ RowTotals totals_of_thread(const IndexRule& rule, int64_t n, const int32_t* targets,
                                      const A* losses, const FaultSlot& fault) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  RowTotals own;
  for (int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; first < n;
       first += kHandful * step) {
    int32_t target[kHandful];
    A loss[kHandful];
    const auto for_handful = [&](auto f) {
#pragma unroll
      for (int j = 0; j < kHandful; ++j) {
        const int64_t i = first + j * step;
        if (i < n) f(j, i);
      }
    };
    for_handful([&](int j, int64_t i) {
      target[j] = targets[i];
      loss[j] = losses[i];
    });
    for_handful([&](int j, int64_t i) {
      own.sum += static_cast<double>(loss[j]);
      own.count += target[j] != rule.ignored;
      if (!rule.allows(target[j])) fault.report(rule, i, target[j]);
    });
  }
  return own;
}

// Each block writes its totals to its own place of `partial`; the last one to do so adds them up,
// in the order of their places.
template <class A>
__global__ void __launch_bounds__(kTotalThreads)
    total_of_rows(IndexRule rule, int64_t n, const int32_t* targets, const A* losses,
                  RowTotals* partial, A* sum, int64_t* count, FaultSlot fault, Tickets tickets) {
  __shared__ bool last;
  const RowTotals of_block = totals_of_thread(rule, n, targets, losses, fault).over_block();
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = of_block;
    __threadfence();  // seen by whoever draws a later ticket
    last = tickets.draw() == static_cast<int>(gridDim.x) - 1;
    tickets.finish();
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  const RowTotals own = threadIdx.x < gridDim.x ? partial[threadIdx.x] : RowTotals{};
  const RowTotals all = own.over_block();
  if (threadIdx.x == 0) {
    *sum = static_cast<A>(all.sum);
    *count = all.count;
  }
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

template <class T>
void cross_entropy_losses(const Cuda& cuda, const LogitRows& rows, const T* logits,
                          Accumulator<T>* losses) {
  check_columns(rows.columns);
  constexpr int kPacks = 16;  // of a thread, where a block need not have more threads
  const int threads = std::min(256, threads_for(ceil_div(rows.columns, kPackSize<T>), kPacks));
  XT_LAUNCH(cuda, shape_of_rows(rows.rows, threads), (losses_of_rows<T>), rows, logits, losses);
}

template <class T>
void cross_entropy_gradients(const Cuda& cuda, const LogitRows& rows, const T* logits,
                             const Accumulator<T>* dsum, Accumulator<T>* losses, T* dlogits) {
  check_columns(rows.columns);
  const RowLaunch l = row_launch<T>(cuda, rows.columns);
  const LaunchShape shape = shape_of_rows(rows.rows, l.threads, l.shared_bytes());
  if (l.held == 2) {
    XT_LAUNCH(cuda, shape, (gradients_of_rows<T, 2>), rows, logits, l.shared_packs, dsum, losses,
              dlogits);
  } else {
    XT_LAUNCH(cuda, shape, (gradients_of_rows<T, 4>), rows, logits, l.shared_packs, dsum, losses,
              dlogits);
  }
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
void total_row_losses(const Cuda& cuda, const IndexRule& rule, int64_t n, const int32_t* targets,
                      const A* losses, A* sum, int64_t* count) {
  const int64_t blocks =
      std::clamp<int64_t>(ceil_div(n, kHandful * kTotalThreads), 1, kMostTotalBlocks);
  const int64_t bytes = blocks * static_cast<int64_t>(sizeof(RowTotals));
  Tensor partial = empty(cuda.ctx, {bytes / size_of(Dtype::f64)}, Dtype::f64);
  XT_LAUNCH(cuda, (LaunchShape{grid_for(blocks, 1), kTotalThreads}), (total_of_rows<A>), rule, n,
            targets, losses, reinterpret_cast<RowTotals*>(partial.mutable_data<double>()), sum,
            count, queue_of(cuda).fault_slot(), queue_of(cuda).tickets());
}

template void total_row_losses(const Cuda&, const IndexRule&, int64_t, const int32_t*,
                               const double*, double*, int64_t*);
template void total_row_losses(const Cuda&, const IndexRule&, int64_t, const int32_t*, const float*,
                               float*, int64_t*);

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
