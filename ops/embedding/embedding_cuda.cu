#include <cub/device/device_radix_sort.cuh>
#include <limits>

#include "core/cuda/reduce.h"
#include "core/cuda/row.h"
#include "core/error.h"
#include "ops/embedding/embedding_kernels.h"

namespace xtrain {
namespace {

constexpr int kWarpsPerBlock = 8;

// One row of a warp's own: row number i of a grid of warps.
__device__ int64_t first_warp() {
  return int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / kWarp;
}
__device__ int64_t warp_stride() {
  return int64_t{gridDim.x} * kWarpsPerBlock;
}

// --- gather --------------------------------------------------------------------------------------

// One warp a row. Unit is what a lane copies at a time: 16 bytes or an element.
template <class Unit>
__global__ void gather_units(int64_t n, int64_t rows, int64_t units, const int32_t* ids,
                             const Unit* weight, Unit* y) {
  const int lane = threadIdx.x % kWarp;
  for (int64_t i = first_warp(); i < n; i += warp_stride()) {
    const int32_t id = ids[i];
    if (id < 0 || id >= rows) continue;
    const Unit* from = weight + id * units;
#pragma unroll 4
    for (int64_t j = lane; j < units; j += kWarp) y[i * units + j] = from[j];
  }
}

// --- scatter: ids in order
// ------------------------------------------------------------------------

// The positions of dy sorted by id, those of one id in their order. Ids outside of the table come
// last, as `outside`.
struct SortedIds {
  int64_t n = 0;
  uint32_t outside = 0;
  const uint32_t* id = nullptr;
  const uint32_t* position = nullptr;

  __device__ bool starts_at(int64_t i) const { return i == 0 || id[i] != id[i - 1]; }
  __device__ bool ends_before(int64_t i) const { return i == n || id[i] != id[i - 1]; }
};

__global__ void number_ids(int64_t n, uint32_t outside, const int32_t* ids, uint32_t* id,
                           uint32_t* position) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const uint32_t given = static_cast<uint32_t>(ids[i]);  // negative ones are large
  id[i] = min(given, outside);
  position[i] = static_cast<uint32_t>(i);
}

// The tensors that a SortedIds points into.
struct SortBuffers {
  Tensor id, position, sorted_id, sorted_position, scratch;
};

SortedIds sort_ids(const Cuda& cuda, int64_t n, int64_t rows, const int32_t* ids,
                   SortBuffers& buffers) {
  const auto words = [&](Tensor& t) {
    t = empty(cuda.ctx, {n}, Dtype::i32);
    return reinterpret_cast<uint32_t*>(t.mutable_data<int32_t>());
  };
  uint32_t* id = words(buffers.id);
  uint32_t* position = words(buffers.position);
  uint32_t* sorted_id = words(buffers.sorted_id);
  uint32_t* sorted_position = words(buffers.sorted_position);
  const uint32_t outside = static_cast<uint32_t>(std::min(rows, int64_t{1} << 31));
  constexpr int kThreads = 256;
  XT_LAUNCH(cuda, (LaunchShape{grid_for(n, kThreads), kThreads}), number_ids, n, outside, ids, id,
            position);
  const int bits = 64 - __builtin_clzll(static_cast<uint64_t>(outside));
  size_t bytes = 0;
  const auto sort = [&](void* scratch) {
    XT_CUDA(cub::DeviceRadixSort::SortPairs(scratch, bytes, id, sorted_id, position,
                                            sorted_position, static_cast<int>(n), 0, bits,
                                            stream_of(cuda)));
  };
  sort(nullptr);  // says how many bytes it needs
  buffers.scratch = empty(cuda.ctx, {static_cast<int64_t>(bytes) / 4 + 1}, Dtype::i32);
  sort(buffers.scratch.mutable_data<int32_t>());
  return {n, outside, sorted_id, sorted_position};
}

// --- scatter: sums -------------------------------------------------------------------------------
//
// The sorted positions are cut into windows. The rows of one id within a window form a piece, which
// one warp sums in order. An id that lies in one window is done with that. One that is longer, and
// a frequent id may take thousands of rows, leaves a sum in every window, and a second kernel adds
// those in a fixed order.
constexpr int kWindow = kWarp;

// Sums in the accumulator's type of kWidth neighbouring columns.
template <class A, int kWidth>
struct Columns {
  A at[kWidth];

  template <class T>
  __device__ void add(const T* from) {
    if constexpr (kWidth == 1) {
      at[0] += static_cast<A>(*from);
    } else {
#pragma unroll
      for (int i = 0; i < kWidth; i += kPackSize<T>) {
        const Values<T> values = values_of(load_pack(from + i));
#pragma unroll
        for (int j = 0; j < kPackSize<T>; ++j) at[i + j] += values.at[j];
      }
    }
  }
  __device__ void store(A* to) const {
    if constexpr (kWidth == 1) {
      *to = at[0];
    } else {
#pragma unroll
      for (int i = 0; i < kWidth; i += kPackSize<A>) {
        Pack<A> pack;
#pragma unroll
        for (int j = 0; j < kPackSize<A>; ++j) pack.value[j] = at[i + j];
        store_pack(to + i, pack);
      }
    }
  }
};

// A window has at most two pieces of ids that go beyond it: one that comes from the window before,
// and one that starts in it.
template <class A>
__device__ A* partial_of(A* partials, int64_t window, bool starts, int64_t columns) {
  return partials + (2 * window + (starts ? 1 : 0)) * columns;
}

// One warp a sorted position; it works when a piece begins there.
template <class T, int kWidth>
__global__ void sum_pieces(SortedIds sorted, int64_t columns, const T* dy, Accumulator<T>* partials,
                           Accumulator<T>* dweight) {
  using A = Accumulator<T>;
  const int lane = threadIdx.x % kWarp;
  for (int64_t begin = first_warp(); begin < sorted.n; begin += warp_stride()) {
    const uint32_t id = sorted.id[begin];
    const bool starts = sorted.starts_at(begin);
    if (id == sorted.outside || !(starts || begin % kWindow == 0)) continue;
    const int64_t window = begin / kWindow, border = min((window + 1) * kWindow, sorted.n);
    // The rows of the piece, one a lane.
    const int64_t mine = begin + lane;
    const bool in_piece = mine < border && sorted.id[mine] == id;
    const uint32_t position = in_piece ? sorted.position[mine] : 0;
    const int count = __popc(__ballot_sync(0xffffffffu, in_piece));
    const bool whole = starts && sorted.ends_before(begin + count);
    A* target = whole ? dweight + id * columns : partial_of(partials, window, starts, columns);
    for (int64_t first = 0; first < columns; first += kWarp * kWidth) {
      const int64_t column = first + lane * kWidth;
      Columns<A, kWidth> sum = {};
#pragma unroll 4
      for (int k = 0; k < count; ++k) {
        const int64_t row = __shfl_sync(0xffffffffu, position, k);
        if (column < columns) sum.add(dy + row * columns + column);
      }
      if (column >= columns) continue;
      if (whole) sum.add(target + column);
      sum.store(target + column);
    }
  }
}

// One block a window and 32 packs of columns; it works when an id starts in the window and goes
// beyond. Warp k adds the sums of the windows k, k + 8, ... of the id; then the first warp adds
// those of the warps.
template <class A, int kWidth>
__global__ void sum_windows(SortedIds sorted, int64_t columns, A* partials, A* dweight) {
  __shared__ Columns<A, kWidth> sums[kWarpsPerBlock][kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t window = blockIdx.x, begin = window * kWindow, end = begin + kWindow;
  if (end >= sorted.n) return;
  const uint32_t id = sorted.id[end - 1];
  if (id == sorted.outside || sorted.id[end] != id) return;
  if (!sorted.starts_at(begin) && sorted.id[begin] == id) return;  // starts in an earlier one
  for (int64_t first = blockIdx.y * kWarp * kWidth; first < columns;
       first += int64_t{gridDim.y} * kWarp * kWidth) {
    const int64_t column = first + lane * kWidth;
    Columns<A, kWidth> sum = {};
#pragma unroll 4
    for (int64_t w = window + warp; w * kWindow < sorted.n; w += kWarpsPerBlock) {
      if (w != window && sorted.id[w * kWindow] != id) break;
      if (column < columns) sum.add(partial_of(partials, w, w == window, columns) + column);
    }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp == 0 && column < columns) {
      for (int k = 1; k < kWarpsPerBlock; ++k) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) sum.at[i] += sums[k][lane].at[i];
      }
      sum.add(dweight + id * columns + column);
      sum.store(dweight + id * columns + column);
    }
    __syncthreads();
  }
}

template <class T, int kWidth>
void sum_rows(const Cuda& cuda, const SortedIds& sorted, int64_t columns, const T* dy,
              Accumulator<T>* dweight) {
  using A = Accumulator<T>;
  constexpr int kThreads = kWarpsPerBlock * kWarp;
  const int64_t windows = ceil_div(sorted.n, kWindow);
  Tensor partials = empty(cuda.ctx, {2 * windows, columns}, dtype_of<A>);
  A* sums = partials.mutable_data<A>();
  XT_LAUNCH(cuda, (LaunchShape{grid_for(sorted.n, kWarpsPerBlock), kThreads}),
            (sum_pieces<T, kWidth>), sorted, columns, dy, sums, dweight);
  constexpr int kWide = kWidth == 1 ? 1 : kPackSize<A>;
  const int64_t strips = std::min<int64_t>(ceil_div(columns, kWarp * kWide), 1024);
  const dim3 grid(static_cast<unsigned>(windows), static_cast<unsigned>(strips));
  XT_LAUNCH(cuda, (LaunchShape{grid, kThreads}), (sum_windows<A, kWide>), sorted, columns, sums,
            dweight);
}

}  // namespace

template <class T>
void gather_rows(const Cuda& cuda, int64_t n, int64_t rows, int64_t columns, const int32_t* ids,
                 const T* weight, T* y) {
  const LaunchShape shape{grid_for(n, kWarpsPerBlock), kWarpsPerBlock * kWarp};
  if (columns == 0) return;
  if (fits_packs(columns, weight, y)) {
    XT_LAUNCH(cuda, shape, (gather_units<uint4>), n, rows, columns / kPackSize<T>, ids,
              reinterpret_cast<const uint4*>(weight), reinterpret_cast<uint4*>(y));
  } else {
    XT_LAUNCH(cuda, shape, (gather_units<T>), n, rows, columns, ids, weight, y);
  }
}

template <class T>
void scatter_add_rows(const Cuda& cuda, int64_t n, int64_t rows, int64_t columns,
                      const int32_t* ids, const T* dy, Accumulator<T>* dweight) {
  if (n == 0 || rows == 0 || columns == 0) return;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  check(n <= kMost, "embedding: the gradient takes at most ", kMost, " ids at a time; got ", n);
  SortBuffers buffers;
  const SortedIds sorted = sort_ids(cuda, n, rows, ids, buffers);
  if (fits_packs(columns, dy) && fits_packs(columns, dweight)) {
    sum_rows<T, kPackSize<T>>(cuda, sorted, columns, dy, dweight);
  } else {
    sum_rows<T, 1>(cuda, sorted, columns, dy, dweight);
  }
}

#define XT_EMBEDDING(T)                                                                            \
  template void gather_rows(const Cuda&, int64_t, int64_t, int64_t, const int32_t*, const T*, T*); \
  template void scatter_add_rows(const Cuda&, int64_t, int64_t, int64_t, const int32_t*, const T*, \
                                 Accumulator<T>*);
XT_EMBEDDING(double)
XT_EMBEDDING(float)
XT_EMBEDDING(BFloat16)
#undef XT_EMBEDDING

}  // namespace xtrain
