#pragma once
// Trained tensors with their gradients, side by side in flat arenas.

#include <deque>
#include <functional>
#include <string>

#include "core/tensor.h"

namespace xtrain {

// matrix: a projection [out, in]. vector: a bias or a norm's weight. embedding: a table [rows, C].
enum class ParameterKind : uint8_t { matrix, vector, embedding };

struct Parameter {
  std::string name;
  Shape shape;
  ParameterKind kind = ParameterKind::matrix;
  bool trainable = true;
  double initial_mean = 0.0, initial_std = 0.0;  // of the normal distribution it starts from

  Tensor value;  // in the dtype of the computation
  Tensor grad;   // f64 for f64, else f32; made on first use when undefined
  // Whether grad holds a sum. When false its elements mean nothing and the next writer overwrites
  // them, so that gradients never need zeroing.
  bool has_grad = false;

  int64_t offset = 0;  // of its first element in the arenas of its set
  // Rows of zeros behind its own in the arenas, set before `allocate`. A product may read those of
  // values, and write zeros to those of gradients.
  int64_t zero_rows = 0;

  // Called before each use of the value in a forward pass, which may have to wait for it. Empty:
  // the value is always there.
  std::function<void()> before_use;
};

// The parameters of a model. Values lie in one arena and gradients in another, at the same offsets,
// so that clipping, optimizers and communication work on ranges of flat memory. The order in the
// arenas is the reverse of the order of addition: a model adds its parameters in the order of
// execution, so gradients become final from the front of the arena to its end.
class ParameterSet {
 public:
  ParameterSet() = default;
  ParameterSet(const ParameterSet&) = delete;
  ParameterSet& operator=(const ParameterSet&) = delete;

  // The reference stays valid. Error when the name is taken or the arenas exist.
  Parameter& add(std::string name, const Shape& shape, ParameterKind kind, double initial_mean,
                 double initial_std);

  // Makes the arenas and every parameter's value and, `with_grads`, grad in them. Padding is zero.
  // Values lie by rows. Only on a CPU and without gradients matrices lie by columns: there x
  // weight^T of a few rows of x, which reads the weight once, is about twice as fast.
  void allocate(const Context& ctx, Dtype dtype, bool with_grads = true);

  std::deque<Parameter>& list() { return list_; }
  const std::deque<Parameter>& list() const { return list_; }
  Parameter* find(const std::string& name);  // null when there is none

  int64_t arena_size() const { return arena_size_; }  // elements, padding included
  const Tensor& values() const { return values_; }    // [arena_size]
  const Tensor& grads() const { return grads_; }

  // The parameter's slice of another arena of arena_size elements.
  Tensor slice_of(const Tensor& arena, const Parameter& parameter) const;

  // Forgets all gradients.
  void clear_grads();
  // Fills the gradients that nobody wrote with zeros.
  void zero_missing_grads(const Context& ctx);

 private:
  std::deque<Parameter> list_;
  int64_t arena_size_ = 0;
  Tensor values_, grads_;
};

// The parameter's value at step 0 in f64: drawn from (seed, name, element), whatever the layout.
Tensor initial_value(const Context& ctx, const Parameter& parameter, uint64_t seed);

}  // namespace xtrain
