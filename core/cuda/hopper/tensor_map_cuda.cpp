#include <algorithm>
#include <array>
#include <string>

#include "core/cuda/check.h"
#include "core/cuda/hopper/tensor_map.h"
#include "core/error.h"

namespace xtrain {
namespace {

constexpr int64_t kBytes = 2;  // of an element

// The driver's function, found through the runtime so that nothing links to the driver itself.
decltype(&cuTensorMapEncodeTiled) encode_function() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  XT_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                           cudaEnableDefault, &found));
  check(found == cudaDriverEntryPointSuccess,
        "the driver must know cuTensorMapEncodeTiled; install one for CUDA 12 or later");
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

// A dimension of size 1 may have any stride, the engine accepts few.
uint64_t bytes_of_stride(int64_t size, int64_t stride) {
  return static_cast<uint64_t>((size == 1 ? 8 : stride) * kBytes);
}

}  // namespace

bool can_be_mapped(const TokenHeads& x) {
  constexpr int64_t kMostRows = int64_t{1} << 31, kMostStride = (int64_t{1} << 40) / kBytes;
  const auto fits = [](int64_t size, int64_t stride) {
    return size >= 1 && size <= kMostRows &&
           (size == 1 || (stride % 8 == 0 && stride > 0 && stride < kMostStride));
  };
  return x.width % 32 == 0 && x.width >= 32 && x.width <= 256 &&
         reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && fits(x.batch, x.batch_stride) &&
         fits(x.time, x.time_stride) && fits(x.heads, x.head_stride);
}

CUtensorMap map_of_tiles(const TokenHeads& x, int rows) {
  check(can_be_mapped(x) && rows >= 1 && rows <= 256,
        "a map of tiles needs aligned rows, a width from 32 to 256 and 1 to 256 rows a tile; got ",
        "width ", x.width, ", ", rows, " rows");
  static const auto encode = encode_function();
  // The width is cut into chunks as wide as the swizzle (SwizzledTile), and the chunks are a
  // dimension outside of time: so one copy brings whole columns of chunks, chunk by chunk.
  const bool wide = x.width % 64 == 0;
  const int64_t chunk = wide ? 64 : 32;
  const std::array<int64_t, 5> sizes = {chunk, x.time, x.width / chunk, x.heads, x.batch};
  const std::array<int64_t, 5> box = {chunk, rows, x.width / chunk, 1, 1};
  const std::array<cuuint64_t, 4> strides = {
      bytes_of_stride(x.time, x.time_stride), bytes_of_stride(2, chunk),
      bytes_of_stride(x.heads, x.head_stride), bytes_of_stride(x.batch, x.batch_stride)};
  std::array<cuuint64_t, 5> global;
  std::array<cuuint32_t, 5> tile, steps;
  std::copy(sizes.begin(), sizes.end(), global.begin());
  std::copy(box.begin(), box.end(), tile.begin());
  steps.fill(1);
  CUtensorMap map;
  const CUresult status = encode(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 5, const_cast<BFloat16*>(x.data), global.data(),
      strides.data(), tile.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
      wide ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check(status == CUDA_SUCCESS, "cuTensorMapEncodeTiled refused a tensor [", x.batch, ", ", x.time,
        ", ", x.heads, ", ", x.width, "] with error ", static_cast<int>(status));
  return map;
}

}  // namespace xtrain
