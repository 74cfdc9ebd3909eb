#pragma once
// Kernels for tests that run beside others on one GPU, and for what such tests compare.

#include <cstdint>

#include "core/dispatch.h"

namespace xtrain {

// In nanoseconds of the GPU's clock, all over the GPU the same.
struct GpuSpan {
  int64_t first = INT64_MAX, last = 0;

  bool overlaps(const GpuSpan& other) const { return first < other.last && other.first < last; }
};

// Each of the blocks keeps most of a multiprocessor for a time up to `longest` nanoseconds, other
// ones for each seed. *span, in the memory of the GPU, grows to hold all of it.
void occupy_gpu(const Cuda& cuda, int blocks, int64_t longest, uint64_t seed, GpuSpan* span);

// *span grows to hold this moment of the queue.
void note_moment(const Cuda& cuda, GpuSpan* span);

// *count grows by the number of elements whose bits differ. Both contiguous, of one shape and
// dtype, their bytes a multiple of 4.
void count_differences(const Cuda& cuda, const Tensor& x, const Tensor& y, int64_t* count);

}  // namespace xtrain
