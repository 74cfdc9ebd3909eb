#include <algorithm>
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

// Relative to the largest logit: a logsumexp in one number would lose the sum beside it.
template <class A>
struct RowStatistics {
  A largest, sum;  // of exp(logit - largest)
};

template <class T>
RowStatistics<Accumulator<T>> statistics_of(int64_t n, const T* x) {
  const Accumulator<T> largest = largest_of(n, x);
  return {largest, sum_of_exponentials(n, x, largest)};
}

template <class T>
Accumulator<T> row_loss(const RowStatistics<Accumulator<T>>& s, T target_logit) {
  return std::log(s.sum) + (s.largest - static_cast<Accumulator<T>>(target_logit));
}

}  // namespace

template <class T>
void cross_entropy_losses(const Cpu& cpu, const LogitRows& rows, const T* logits,
                          Accumulator<T>* losses) {
  parallel_for(cpu, rows.rows, [&](int64_t i) {
    losses[i] = 0;
    const int32_t target = rows.targets[i];
    if (!rows.counts(target)) return;
    const T* x = logits + i * rows.columns;
    losses[i] = row_loss(statistics_of(rows.vocab(), x), x[target]);
  });
}

template <class T>
void cross_entropy_gradients(const Cpu& cpu, const LogitRows& rows, const T* logits,
                             const Accumulator<T>* dsum, Accumulator<T>* losses, T* dlogits) {
  using A = Accumulator<T>;
  const A scale = dsum ? *dsum : A{1};
  parallel_for(cpu, rows.rows, [&](int64_t i) {
    const int32_t target = rows.targets[i];
    const T* x = logits + i * rows.columns;
    T* dx = dlogits + i * rows.columns;
    losses[i] = 0;
    if (!rows.counts(target)) return std::fill(dx, dx + rows.columns, T(0));
    const RowStatistics<A> s = statistics_of(rows.vocab(), x);
    losses[i] = row_loss(s, x[target]);
    const A inverse_sum = A{1} / s.sum, factor = scale * inverse_sum;
    const A probability = vector_exp(static_cast<A>(x[target]) - s.largest) * inverse_sum;
#pragma omp simd
    for (int64_t j = 0; j < rows.vocab(); ++j) {
      dx[j] = static_cast<T>(factor * vector_exp(static_cast<A>(x[j]) - s.largest));
    }
    std::fill(dx + rows.vocab(), dx + rows.columns, T(0));
    dx[target] = static_cast<T>(scale * (probability - A{1}));
  });
}

template <class T>
void scale_in_place(const Cpu& cpu, int64_t n, const Accumulator<T>* factor, T* x) {
  using A = Accumulator<T>;
  const A f = *factor;
  if (f == A{1}) return;
  parallel_blocks(cpu, n, kElementBlock, [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) x[i] = static_cast<T>(static_cast<A>(x[i]) * f);
  });
}

template <class A>
void total_row_losses(const Cpu& cpu, const IndexRule& rule, int64_t n, const int32_t* targets,
                      const A* losses, A* sum, int64_t* count) {
  check_index_range(cpu, rule, n, targets);
  *sum = static_cast<A>(std::accumulate(losses, losses + n, 0.0));
  *count = n - std::count(targets, targets + n, rule.ignored);
}

template void total_row_losses(const Cpu&, const IndexRule&, int64_t, const int32_t*, const double*,
                               double*, int64_t*);
template void total_row_losses(const Cpu&, const IndexRule&, int64_t, const int32_t*, const float*,
                               float*, int64_t*);

#define XT_CROSS_ENTROPY(T)                                                                    \
  template void cross_entropy_losses(const Cpu&, const LogitRows&, const T*, Accumulator<T>*); \
  template void cross_entropy_gradients(const Cpu&, const LogitRows&, const T*,                \
                                        const Accumulator<T>*, Accumulator<T>*, T*);           \
  template void scale_in_place(const Cpu&, int64_t, const Accumulator<T>*, T*);
XT_CROSS_ENTROPY(double)
XT_CROSS_ENTROPY(float)
XT_CROSS_ENTROPY(BFloat16)
#undef XT_CROSS_ENTROPY

}  // namespace xtrain
