#include <limits>

#include "core/cpu/vector_math.h"
#include "core/parallel.h"
#include "ops/attention/probabilities_kernels.h"

namespace xtrain {
namespace {

// body(row, offset of its first element), rows counted over batch, heads and queries.
template <class Body>
void for_each_row(const Cpu& cpu, const ProbabilitySizes& sizes, Body&& body) {
  const int64_t block = std::max<int64_t>(1, kElementBlock / std::max<int64_t>(1, sizes.keys));
  parallel_blocks(cpu, sizes.rows(), block, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row, row * sizes.keys);
  });
}

// p = softmax(scale s) over n > 0 elements; shifted by the largest, so that no exponent overflows.
template <class T>
void softmax_row(int64_t n, Accumulator<T> scale, const T* s, T* p) {
  using A = Accumulator<T>;
  A largest = -std::numeric_limits<A>::infinity();
#pragma omp simd reduction(max : largest)
  for (int64_t j = 0; j < n; ++j) largest = std::max(largest, scale * static_cast<A>(s[j]));
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < n; ++j) sum += vector_exp(scale * static_cast<A>(s[j]) - largest);
  const A share = A{1} / sum;
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) {
    p[j] = static_cast<T>(vector_exp(scale * static_cast<A>(s[j]) - largest) * share);
  }
}

}  // namespace

template <class T>
void masked_softmax_forward(const Cpu& cpu, const ProbabilitySizes& sizes, double scale,
                            const VisibleKeys& visible, const T* s, T* p) {
  for_each_row(cpu, sizes, [&](int64_t row, int64_t offset) {
    const KeyRange range = visible.of(row / (sizes.heads * sizes.queries), row % sizes.queries);
    T* out = p + offset;
    std::fill(out, out + range.first, T(0));
    std::fill(out + range.end, out + sizes.keys, T(0));
    if (range.first == range.end) return;
    softmax_row(range.end - range.first, static_cast<Accumulator<T>>(scale),
                s + offset + range.first, out + range.first);
  });
}

template <class T>
void masked_softmax_backward(const Cpu& cpu, const ProbabilitySizes& sizes, double scale,
                             const T* p, const T* dp, T* ds) {
  using A = Accumulator<T>;
  for_each_row(cpu, sizes, [&](int64_t, int64_t offset) {
    const T *pi = p + offset, *dpi = dp + offset;
    T* dsi = ds + offset;
    A dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t j = 0; j < sizes.keys; ++j) dot += static_cast<A>(pi[j]) * static_cast<A>(dpi[j]);
#pragma omp simd
    for (int64_t j = 0; j < sizes.keys; ++j) {
      const A slope = static_cast<A>(scale) * static_cast<A>(pi[j]);
      dsi[j] = static_cast<T>(slope * (static_cast<A>(dpi[j]) - dot));
    }
  });
}

template <class T>
void probability_dropout_apply(const Cpu& cpu, const ProbabilitySizes& sizes,
                               const DropoutSource& source, const T* x, T* y) {
  using A = Accumulator<T>;
  const AttentionDropout dropout(source);
  const A kept = static_cast<A>(dropout.kept);
  for_each_row(cpu, sizes, [&](int64_t row, int64_t offset) {
    const int64_t query = row % sizes.queries, head = row / sizes.queries % sizes.heads;
    const int64_t batch = row / (sizes.heads * sizes.queries);
    for (int64_t quad = 0; 4 * quad < sizes.keys; ++quad) {
      const Philox4 w = dropout.words(batch, head, query, quad);
      for (int64_t j = 4 * quad; j < std::min(sizes.keys, 4 * quad + 4); ++j) {
        const A factor = dropout.keeps(w.word[j % 4]) ? kept : A{0};
        y[offset + j] = static_cast<T>(static_cast<A>(x[offset + j]) * factor);
      }
    }
  });
}

#define XT_PROBABILITIES(T)                                                                    \
  template void masked_softmax_forward(const Cpu&, const ProbabilitySizes&, double,            \
                                       const VisibleKeys&, const T*, T*);                      \
  template void masked_softmax_backward(const Cpu&, const ProbabilitySizes&, double, const T*, \
                                        const T*, T*);                                         \
  template void probability_dropout_apply(const Cpu&, const ProbabilitySizes&,                 \
                                          const DropoutSource&, const T*, T*);
XT_PROBABILITIES(double)
XT_PROBABILITIES(float)
XT_PROBABILITIES(BFloat16)
#undef XT_PROBABILITIES

}  // namespace xtrain
