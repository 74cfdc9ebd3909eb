#include <cmath>
#include <limits>
#include <numeric>

#include "core/cpu/vector_math.h"
#include "core/parallel.h"
#include "ops/cross_entropy/cross_entropy_kernels.h"

namespace xtrain {
namespace {

template <class T>
Accumulator<T> largest_of(int64_t n, const T* x) {
  using A = Accumulator<T>;
  A largest = -std::numeric_limits<A>::infinity();
#pragma omp simd reduction(max : largest)
  for (int64_t j = 0; j < n; ++j) {
    const A value = static_cast<A>(x[j]);
    largest = value > largest ? value : largest;
  }
  return largest;
}

template <class T>
Accumulator<T> sum_of_exponentials(int64_t n, const T* x, Accumulator<T> shift) {
  using A = Accumulator<T>;
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < n; ++j) sum += vector_exp(static_cast<A>(x[j]) - shift);
  return sum;
}

}  // namespace

TargetScan scan_targets(const Cpu&, int64_t n, const int32_t* targets, int64_t vocab,
                        int32_t ignore_index) {
  TargetScan scan{.counted = 0, .first_illegal = n};
  for (int64_t i = 0; i < n; ++i) {
    if (targets[i] == ignore_index) continue;
    ++scan.counted;
    if (targets[i] < 0 || targets[i] >= vocab) scan.first_illegal = std::min(scan.first_illegal, i);
  }
  return scan;
}

template <class T>
void cross_entropy_forward(const Cpu& cpu, const LogitRows& rows, const T* logits,
                           Accumulator<T>* losses, Accumulator<T>* statistics) {
  using A = Accumulator<T>;
  parallel_for(cpu, rows.rows, [&](int64_t i) {
    losses[i] = 0;
    if (rows.targets[i] == rows.ignore_index) return;
    const T* row = logits + i * rows.columns;
    const A largest = largest_of(rows.vocab, row);
    const A sum = sum_of_exponentials(rows.vocab, row, largest);
    losses[i] = std::log(sum) + (largest - static_cast<A>(row[rows.targets[i]]));
    statistics[2 * i] = largest;
    statistics[2 * i + 1] = A{1} / sum;
  });
}

template <class T>
void cross_entropy_backward(const Cpu& cpu, const LogitRows& rows, const T* logits,
                            const Accumulator<T>* statistics, const Accumulator<T>* dsum,
                            T* dlogits) {
  using A = Accumulator<T>;
  parallel_for(cpu, rows.rows, [&](int64_t i) {
    const int32_t target = rows.targets[i];
    const T* x = logits + i * rows.columns;
    T* dx = dlogits + i * rows.columns;
    if (target == rows.ignore_index) return std::fill(dx, dx + rows.columns, T(0));
    const A scale = *dsum, largest = statistics[2 * i], inverse_sum = statistics[2 * i + 1];
    const A probability = vector_exp(static_cast<A>(x[target]) - largest) * inverse_sum;
    const A factor = scale * inverse_sum;
#pragma omp simd
    for (int64_t j = 0; j < rows.vocab; ++j) {
      dx[j] = static_cast<T>(factor * vector_exp(static_cast<A>(x[j]) - largest));
    }
    std::fill(dx + rows.vocab, dx + rows.columns, T(0));
    dx[target] = static_cast<T>(scale * (probability - A{1}));
  });
}

template <class A>
void sum_losses(const Cpu&, int64_t n, const A* losses, A* sum) {
  *sum = static_cast<A>(std::accumulate(losses, losses + n, 0.0));
}

template void sum_losses(const Cpu&, int64_t, const double*, double*);
template void sum_losses(const Cpu&, int64_t, const float*, float*);

#define XT_CROSS_ENTROPY(T)                                                                    \
  template void cross_entropy_forward(const Cpu&, const LogitRows&, const T*, Accumulator<T>*, \
                                      Accumulator<T>*);                                        \
  template void cross_entropy_backward(const Cpu&, const LogitRows&, const T*,                 \
                                       const Accumulator<T>*, const Accumulator<T>*, T*);
XT_CROSS_ENTROPY(double)
XT_CROSS_ENTROPY(float)
XT_CROSS_ENTROPY(BFloat16)
#undef XT_CROSS_ENTROPY

}  // namespace xtrain
