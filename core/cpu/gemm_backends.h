#pragma once
// The GEMM backends of the CPU, one file each, and what they share.

#include <algorithm>

#include "core/gemm_kernels.h"
#include "core/parallel.h"

namespace xtrain {

// c[i] = alpha * a[i] b[i] + beta * c[i] for every matrix of the problem.
template <class T, class Out>
void naive_gemm(const Cpu& cpu, const GemmProblem& problem, const T* a, const T* b, Out* c);
template <class T, class Out>
void tiled_gemm(const Cpu& cpu, const GemmProblem& problem, const T* a, const T* b, Out* c);
template <class T, class Out>
void library_gemm(const Cpu& cpu, const GemmProblem& problem, const T* a, const T* b, Out* c);

// Where element (row, column) of a matrix lies.
inline int64_t offset_in(const GemmOperand& op, int64_t row, int64_t column) {
  return op.transposed ? column * op.ld + row : row * op.ld + column;
}

// target = value, rounded. The compiler turns loops over a scalar member into vector code, loops
// over whole structures not.
template <class A, class Out>
inline void round_to(A value, Out& target) {
  target = static_cast<Out>(value);
}
inline void round_to(float value, BFloat16& target) {
  target.bits = BFloat16(value).bits;
}

// c[j] = alpha * sums[j] + beta * c[j], rounded once; beta 0 does not read c.
template <class Acc, class Out>
inline void store_sums(const GemmProblem& p, int64_t count, const Acc* sums, Out* c) {
  const Acc alpha = static_cast<Acc>(p.alpha), beta = static_cast<Acc>(p.beta);
  if (p.beta == 0.0) {
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) round_to(alpha * sums[j], c[j]);
  } else {
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) {
      round_to(alpha * sums[j] + beta * static_cast<Acc>(c[j]), c[j]);
    }
  }
}

// body(a, b, c, begin, end) for blocks of rows [begin, end) of every matrix, cut by the shape
// alone and each computed by one thread.
template <class T, class Out, class Body>
void for_row_blocks(const Cpu& cpu, const GemmProblem& p, const T* a, const T* b, Out* c,
                    Body&& body) {
  constexpr int64_t kFewest = 32, kMost = 256, kBlocks = 8;
  const int64_t wanted = (p.m * p.batches() + kBlocks - 1) / kBlocks;
  const int64_t rows = std::clamp((wanted + kFewest - 1) / kFewest * kFewest, kFewest, kMost);
  const int64_t blocks = (p.m + rows - 1) / rows;
  parallel_for(cpu, p.batches() * blocks, [&](int64_t i) {
    const int64_t batch = i / blocks, begin = i % blocks * rows;
    body(a + p.batch_offset(p.batch_stride_a, batch), b + p.batch_offset(p.batch_stride_b, batch),
         c + p.batch_offset(p.batch_stride_c, batch), begin, std::min(p.m, begin + rows));
  });
}

}  // namespace xtrain
