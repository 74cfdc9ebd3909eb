#pragma once
// Parallel loops on the CPU. Which thread runs an iteration is left to the moment (work_shares.h).
// No sum is ever split among threads, and borders depend on their number only where they change no
// bits (cpu/gemm_tiled.cpp), so the result has the same bits on any number of them.

#include <algorithm>
#include <cstdint>
#include <exception>

#include "core/dispatch.h"
#include "core/work_shares.h"

namespace xtrain {

// The calling thread's number among those of the innermost parallel loop.
int thread_index();

// Runs body(i) and keeps what it throws.
template <class Body>
void run_kept(Body& body, int64_t i, std::exception_ptr& failure) {
  try {
    body(i);
  } catch (...) {
#pragma omp critical(xtrain_parallel_for)
    failure = std::current_exception();
  }
}

// body(i) for i in [0, count). When bodies throw, all others still run, and then one of the
// exceptions is thrown on: none may leave the parallel region itself.
template <class Body>
void parallel_for(const Cpu& cpu, int64_t count, Body&& body) {
  const int threads =
      static_cast<int>(std::max<int64_t>(1, std::min<int64_t>(cpu.threads(), count)));
  std::exception_ptr failure;
  if (threads == 1) {  // a region of one thread costs more than the small loops of a decoded token
    for (int64_t i = 0; i < count; ++i) run_kept(body, i, failure);
  } else {
    WorkShares shares(count, threads);
#pragma omp parallel num_threads(threads)
    for (int64_t begin = 0, end = 0; shares.take(thread_index(), begin, end);) {
      for (int64_t i = begin; i < end; ++i) run_kept(body, i, failure);
    }
  }
  if (failure) std::rethrow_exception(failure);
}

// body(begin, end) for consecutive blocks of `block` out of [0, count); the last may be shorter.
template <class Body>
void parallel_blocks(const Cpu& cpu, int64_t count, int64_t block, Body&& body) {
  const int64_t blocks = (count + block - 1) / block;
  parallel_for(cpu, blocks, [&](int64_t i) { body(i * block, std::min(count, (i + 1) * block)); });
}

// Elements of a cheap element-wise loop that are worth a thread's while.
inline constexpr int64_t kElementBlock = 8192;

// The cores that this process may use (its inherited affinity mask).
int available_cores();

// Binds thread i of parallel loops of `threads` threads to the i-th core of the inherited mask.
// Unbound threads may share a core for milliseconds at a time. For programs that own their cores.
void bind_threads(int threads);

// Lets the calling thread run on every core of the inherited mask, whichever bound thread started
// it.
void run_on_all_cores();

}  // namespace xtrain
