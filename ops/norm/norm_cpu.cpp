#include <algorithm>

#include "core/parallel.h"
#include "ops/norm/norm_kernels.h"
#include "ops/norm/norm_row.h"

namespace xtrain {
namespace {

constexpr int64_t kRowBlock = 64;      // rows whose weight gradients form one partial sum
constexpr int64_t kColumnBlock = 256;  // columns of a task that adds up the partial sums

// y = the row as normalised, scaled and shifted.
template <class T>
void write_normalized(const T* x, int64_t width, Accumulator<T> mean, Accumulator<T> rstd,
                      const T* weight, const T* bias, T* y) {
  using A = Accumulator<T>;
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) {
    const A x_hat = (static_cast<A>(x[i]) - mean) * rstd;
    const A scaled = weight ? x_hat * static_cast<A>(weight[i]) : x_hat;
    y[i] = static_cast<T>(bias ? scaled + static_cast<A>(bias[i]) : scaled);
  }
}

template <class T>
void forward_row(const NormForward<T>& p, int64_t row) {
  using A = Accumulator<T>;
  const int64_t width = p.width, start = row * width;
  const T* x = p.x + start;
  if (p.branch) {
    const T* branch = p.branch + start;
    T* sum = p.sum + start;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      sum[i] = static_cast<T>(static_cast<A>(x[i]) + static_cast<A>(branch[i]));
    }
    x = sum;
  }
  const bool centered = p.kind == NormKind::layer;
  const A mean = centered ? row_mean(x, width) : A{0};
  const A rstd = centered ? centered_rstd(x, width, mean, p.eps) : rms_rstd(x, width, p.eps);
  write_normalized(x, width, mean, rstd, p.weight, p.bias, p.y + start);
  if (centered) p.mean[row] = mean;
  p.rstd[row] = rstd;
}

template <class T>
void add_parameter_gradients(const NormBackward<T>& p, int64_t row, Accumulator<T>* dweight,
                             Accumulator<T>* dbias) {
  using A = Accumulator<T>;
  const T *x = p.x + row * p.width, *dy = p.dy + row * p.width;
  const A mean = p.mean ? p.mean[row] : A{0}, rstd = p.rstd[row];
  if (dweight) {
#pragma omp simd
    for (int64_t i = 0; i < p.width; ++i) {
      dweight[i] += static_cast<A>(dy[i]) * ((static_cast<A>(x[i]) - mean) * rstd);
    }
  }
  if (dbias) {
#pragma omp simd
    for (int64_t i = 0; i < p.width; ++i) dbias[i] += static_cast<A>(dy[i]);
  }
}

// dx_sums may be null.
template <class T>
void input_gradient_row(const NormBackward<T>& p, int64_t row, Accumulator<T>* dx_sums) {
  using A = Accumulator<T>;
  const int64_t width = p.width, start = row * width;
  const T *x = p.x + start, *dy = p.dy + start, *weight = p.weight;
  const T* dsum = p.dsum ? p.dsum + start : nullptr;
  T* dx = p.dx + start;
  const A mean = p.mean ? p.mean[row] : A{0}, rstd = p.rstd[row];
  A sum_g = 0, sum_gx = 0;
#pragma omp simd reduction(+ : sum_g, sum_gx)
  for (int64_t i = 0; i < width; ++i) {
    const A g = weight ? static_cast<A>(dy[i]) * static_cast<A>(weight[i]) : static_cast<A>(dy[i]);
    sum_g += g;
    sum_gx += g * ((static_cast<A>(x[i]) - mean) * rstd);
  }
  const A mean_g = p.kind == NormKind::layer ? sum_g / static_cast<A>(width) : A{0};
  const A mean_gx = sum_gx / static_cast<A>(width);
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) {
    const A g = weight ? static_cast<A>(dy[i]) * static_cast<A>(weight[i]) : static_cast<A>(dy[i]);
    const A x_hat = (static_cast<A>(x[i]) - mean) * rstd;
    const A through_norm = rstd * (g - mean_g - x_hat * mean_gx);
    dx[i] = static_cast<T>(dsum ? static_cast<A>(dsum[i]) + through_norm : through_norm);
  }
  if (dx_sums) {
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) dx_sums[i] += static_cast<A>(dx[i]);
  }
  if (p.y) write_normalized(x, width, mean, rstd, weight, p.bias, p.y + start);
}

template <class A>
void sum_rows(const Cpu& cpu, int64_t rows, int64_t width, const RowSums<A>& job) {
  parallel_blocks(cpu, width, kColumnBlock, [&](int64_t begin, int64_t end) {
    A sums[kColumnBlock] = {};
    const int64_t count = end - begin;
    for (int64_t row = 0; row < rows; ++row) {
      const A* source = job.x + row * width + begin;
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) sums[i] += source[i];
    }
    for (int64_t i = 0; i < count; ++i) {
      A& element = job.target[(begin + i) * job.stride];
      element = job.accumulate ? element + sums[i] : sums[i];
    }
  });
}

}  // namespace

template <class T>
void norm_forward(const Cpu& cpu, const NormForward<T>& p) {
  if (p.width == 0) return;
  parallel_blocks(cpu, p.rows, kRowBlock, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) forward_row(p, row);
  });
}

template <class T>
int64_t norm_row_blocks(const Cpu&, int64_t rows, int64_t) {
  return (rows + kRowBlock - 1) / kRowBlock;
}

template <class T>
void norm_backward(const Cpu& cpu, const NormBackward<T>& p) {
  if (p.width == 0) return;
  parallel_blocks(cpu, p.rows, kRowBlock, [&](int64_t begin, int64_t end) {
    const int64_t partial = begin / kRowBlock * p.width;
    auto* dweight = p.dweight ? p.dweight + partial : nullptr;
    auto* dbias = p.dbias ? p.dbias + partial : nullptr;
    if (dweight) std::fill_n(dweight, p.width, 0);
    if (dbias) std::fill_n(dbias, p.width, 0);
    auto* dx_sums = p.dx_sums ? p.dx_sums + partial : nullptr;
    if (dx_sums) std::fill_n(dx_sums, p.width, 0);
    for (int64_t row = begin; row < end; ++row) {
      add_parameter_gradients(p, row, dweight, dbias);
      if (p.dx) input_gradient_row(p, row, dx_sums);  // last: dx or y may be dy
    }
  });
}

template <class A>
void sum_rows(const Cpu& cpu, int64_t rows, int64_t width, const RowSums<A>& first,
              const RowSums<A>& second) {
  for (const RowSums<A>& job : {first, second}) {
    if (job.target) sum_rows(cpu, rows, width, job);
  }
}

#define XT_NORM(T)                                                   \
  template void norm_forward(const Cpu&, const NormForward<T>&);     \
  template int64_t norm_row_blocks<T>(const Cpu&, int64_t, int64_t); \
  template void norm_backward(const Cpu&, const NormBackward<T>&);
XT_NORM(double)
XT_NORM(float)
XT_NORM(BFloat16)
#undef XT_NORM
template void sum_rows(const Cpu&, int64_t, int64_t, const RowSums<double>&,
                       const RowSums<double>&);
template void sum_rows(const Cpu&, int64_t, int64_t, const RowSums<float>&, const RowSums<float>&);

}  // namespace xtrain
