#pragma once
// Offsets into strided tensors inside kernels.

#include <cstdint>

#include "core/dtype.h"
#include "core/shape.h"

namespace xtrain {

// A shape with up to kMostRank dimensions and the strides of kTensors tensors over it, neighbouring
// dimensions joined where every tensor allows it. Passed to kernels by value.
template <int kTensors>
struct StridedIndex {
  static constexpr int kMostRank = 8;
  int rank = 0;
  int64_t size[kMostRank];  // outermost first
  int64_t stride[kTensors][kMostRank];
  int64_t count = 1;

  StridedIndex(const Shape& shape, const Strides (&strides)[kTensors]) {
    for (int i = 0; i < shape.rank(); ++i) {
      count *= shape[i];
      if (shape[i] == 1) continue;
      bool joins = rank > 0;
      for (int t = 0; t < kTensors && joins; ++t) {
        joins = stride[t][rank - 1] == shape[i] * strides[t][i];
      }
      if (!joins) size[rank++] = 1;
      size[rank - 1] *= shape[i];
      for (int t = 0; t < kTensors; ++t) stride[t][rank - 1] = strides[t][i];
    }
  }

  // Whether tensor t lies without gaps in the order of the index.
  bool is_flat(int t) const { return rank == 0 || (rank == 1 && stride[t][0] == 1); }

  // offset[t] of element `index` in row-major order.
  XT_HOST_DEVICE void offsets(int64_t index, int64_t (&offset)[kTensors]) const {
    for (int t = 0; t < kTensors; ++t) offset[t] = 0;
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (int d = kMostRank - 1; d > 0; --d) {
      if (d >= rank) continue;
      const int64_t i = index % size[d];
      index /= size[d];
      for (int t = 0; t < kTensors; ++t) offset[t] += i * stride[t][d];
    }
    if (rank > 0) {
      for (int t = 0; t < kTensors; ++t) offset[t] += index * stride[t][0];
    }
  }
};

}  // namespace xtrain
