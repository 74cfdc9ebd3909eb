#include "autodiff/parameter.h"

#include <vector>

#include "core/copy.h"
#include "core/error.h"
#include "core/parallel.h"

namespace xtrain {
namespace {

// Slices start at multiples of 256 bytes in every arena, those of bf16 included.
constexpr int64_t kSliceAlignment = kAllocationAlignment / 2;

int64_t aligned(int64_t elements) {
  return (elements + kSliceAlignment - 1) / kSliceAlignment * kSliceAlignment;
}

// How many elements of an arena the parameter takes.
int64_t elements_of(const Parameter& p) {
  const int64_t behind = p.zero_rows > 0 ? p.zero_rows * (numel_of(p.shape) / p.shape[0]) : 0;
  return aligned(numel_of(p.shape) + behind);
}

// FNV-1a, 64 bits: a fixed function of the name on every machine.
uint64_t hash_of(const std::string& name) {
  uint64_t hash = 14695981039346656037ull;
  for (unsigned char c : name) hash = (hash ^ c) * 1099511628211ull;
  return hash;
}

// The parameter's slice of an arena, with the elements of a column of the matrix side by side.
Tensor by_columns_in(const Tensor& arena, const Parameter& p) {
  const Shape columns{p.shape[1], p.shape[0]};
  return arena.slice(0, p.offset, numel_of(columns)).reshape(columns).transpose(0, 1);
}

}  // namespace

Parameter& ParameterSet::add(std::string name, const Shape& shape, ParameterKind kind,
                             double initial_mean, double initial_std) {
  check(!values_.defined(), "parameters: ", name, " must be added before the arenas are made");
  check(find(name) == nullptr, "parameters: the name ", name, " is taken");
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.shape = shape;
  parameter.kind = kind;
  parameter.initial_mean = initial_mean;
  parameter.initial_std = initial_std;
  list_.push_back(std::move(parameter));
  return list_.back();
}

void ParameterSet::allocate(const Context& ctx, Dtype dtype, bool with_grads) {
  arena_size_ = 0;
  for (auto p = list_.rbegin(); p != list_.rend(); ++p) {
    p->offset = arena_size_;
    arena_size_ += elements_of(*p);
  }
  values_ = zeros(ctx, {arena_size_}, dtype);
  if (with_grads) grads_ = zeros(ctx, {arena_size_}, accumulator_dtype(dtype));
  const bool by_columns = ctx.device.is_cpu() && !with_grads;
  for (Parameter& p : list_) {
    p.value = by_columns && p.kind == ParameterKind::matrix ? by_columns_in(values_, p)
                                                            : slice_of(values_, p);
    if (with_grads) p.grad = slice_of(grads_, p);
  }
}

Parameter* ParameterSet::find(const std::string& name) {
  for (Parameter& p : list_) {
    if (p.name == name) return &p;
  }
  return nullptr;
}

Tensor ParameterSet::slice_of(const Tensor& arena, const Parameter& p) const {
  return arena.slice(0, p.offset, numel_of(p.shape)).reshape(p.shape);
}

void ParameterSet::clear_grads() {
  for (Parameter& p : list_) p.has_grad = false;
}

void ParameterSet::zero_missing_grads(const Context& ctx) {
  for (Parameter& p : list_) {
    if (!p.has_grad) fill(ctx, p.grad, 0.0);
    p.has_grad = true;
  }
}

Tensor initial_value(const Context& ctx, const Parameter& p, uint64_t seed) {
  if (!ctx.computes) return empty(ctx, p.shape, Dtype::f64);
  const RandomStream stream = random_stream(seed, 0, hash_of(p.name));
  std::vector<double> values(numel_of(p.shape), p.initial_mean);
  if (p.initial_std > 0.0) {
    parallel_blocks(Cpu{ctx}, numel_of(p.shape), kElementBlock, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        values[i] += p.initial_std * random_normal(stream, 0, i);
      }
    });
  }
  return from_host(ctx, values, p.shape);
}

}  // namespace xtrain
