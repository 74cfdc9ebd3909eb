#pragma once
// Reverse-mode differentiation by a tape: a list of the nodes that ran, walked backwards once.
//
// An op computes its result, and when one of its inputs lies on a tape it records a Node that knows
// the op's backward. Each value on the tape has a slot for its gradient. A slot is empty or holds a
// sum: the first writer sets it, later ones add, in the order of the walk, so the bits do not
// depend on anything else. Nodes and gradients are freed as the walk passes them.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "autodiff/parameter.h"
#include "autodiff/view.h"
#include "core/context.h"
#include "core/tensor.h"

namespace xtrain {

class Tape;
class Node;

// A value, and where its gradient goes: nowhere (tape null), or a slot of a tape.
struct Var {
  Tensor value;
  Tape* tape = nullptr;
  int slot = -1;
  // Whether a bias over the last dimension was added to it at last. That bias's gradient is the sum
  // of this value's gradient over all other dimensions, so whoever computes the latter may form the
  // sum on the way (Gradients::give) and spare it a walk of its own.
  bool biased = false;

  Var() = default;
  Var(Tensor v) : value(std::move(v)) {}  // NOLINT: a Tensor is a Var that needs no gradient
  Var(Tensor v, Tape* t, int s) : value(std::move(v)), tape(t), slot(s) {}

  bool defined() const { return value.defined(); }
  const Shape& shape() const { return value.shape(); }
  Dtype dtype() const { return value.dtype(); }
  int64_t size(int dim) const { return value.size(dim); }
};

// A tensor that a node keeps for its backward. Its storage must not be written before then; the
// tape checks that and names the op.
class Saved {
 public:
  Saved(Node& owner, const Tensor& tensor);
  Saved(const Saved&) = delete;
  Saved& operator=(const Saved&) = delete;

  const Tensor& tensor() const { return tensor_; }
  const Tensor& operator*() const { return tensor_; }
  const Tensor* operator->() const { return &tensor_; }
  // Moves the tensor out: what backward does not need any more it may overwrite, if nobody else
  // holds it.
  Tensor release() { return std::move(tensor_); }

  // Keeps another tensor, or none.
  void reset(const Tensor& tensor);

  bool changed() const { return tensor_.defined() && tensor_.version() != version_; }

 private:
  Tensor tensor_;
  uint64_t version_ = 0;
};

// The gradients that a node's backward reads and writes; `output` and `input` count as recorded.
class Gradients {
 public:
  const Context& ctx() const;

  // d(loss)/d(output), undefined when nothing that uses the output leads to the loss. The node
  // takes it out of its slot: when take(i).is_sole_holder(), it may be overwritten.
  Tensor take(int output);

  // Where whoever gave that gradient knew them, and nothing was added to it: [n, C], whose sum over
  // n is the gradient's over all but its last dimension, C. Else undefined.
  Tensor take_column_sums(int output);

  // Whether d(loss)/d(input) is needed by anything; when not, computing it is a waste.
  bool wanted(int input) const;

  // Whether both, if wanted, are one value, so that their gradients are one sum.
  bool same(int input, int other) const { return inputs_[input] == inputs_[other]; }

  // The dtype in which a wanted gradient is summed.
  Dtype dtype(int input) const;

  // Adds dx to the input's gradient. dx has the input's shape, any strides and floating dtype; it
  // may be shared with other slots and is never written after this. column_sums, where defined, are
  // those of dx as take_column_sums has them, in the accumulator's dtype.
  void give(int input, Tensor dx, Tensor column_sums = {});

  // Calls write(target, accumulate) to set (accumulate false) or add to the input's gradient in
  // place. target has the input's shape; it may be strided. Its dtype is the input's, but f32 for a
  // bf16 parameter or leaf. Not called when the gradient is not wanted.
  void write(int input, const std::function<void(Tensor target, bool accumulate)>& write);
  // The same with a target of the given dtype.
  void write_as(int input, Dtype dtype,
                const std::function<void(Tensor target, bool accumulate)>& write);

  // Moves out what the input's gradient holds so far, possibly nothing.
  Tensor release(int input);

 private:
  friend class Tape;
  Gradients(Tape& tape, const std::vector<int>& inputs, const std::vector<int>& outputs)
      : tape_(tape), inputs_(inputs), outputs_(outputs) {}

  Tape& tape_;
  const std::vector<int>& inputs_;
  const std::vector<int>& outputs_;
};

// One recorded op: what it kept and how to go backwards through it.
class Node {
 public:
  Node() = default;
  virtual ~Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  virtual const char* name() const = 0;
  // Called at most once, and only if an output has a gradient.
  virtual void backward(Gradients& gradients) = 0;

  const std::vector<Saved*>& saved() const { return saved_; }

 protected:
  friend class Saved;
  std::vector<Saved*> saved_;
};

// Computes a tensor from another, with the same bits each time.
using Rule = std::function<Tensor(const Tensor& source)>;

// Called once for each parameter used on the tape, as soon as its gradient is final.
using OnReady = std::function<void(Parameter&)>;

class Tape {
 public:
  // The context must outlive the tape.
  explicit Tape(const Context& ctx) : ctx_(ctx) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  const Context& ctx() const { return ctx_; }

  // The parameter as a value; the same slot each time. Its gradient goes to parameter.grad. The
  // parameter must outlive the tape.
  Var parameter(Parameter& parameter);

  // A value whose gradient can be asked for after backward. The gradient is kept in f32 for bf16
  // unless `grad_dtype` says otherwise.
  Var leaf(const Tensor& value);
  Var leaf(const Tensor& value, Dtype grad_dtype);

  // Records a node that made `outputs` from `inputs`; use record() below.
  std::vector<Var> add(std::unique_ptr<Node> node, std::span<const Var> inputs,
                       std::vector<Tensor> outputs);

  // Records a view: `value` must hold the elements that `view` picks from x. The view's gradient is
  // written straight into its place in the gradient of x.
  Var add_view(const Var& x, const View& view, Tensor value, const char* name);

  // Nodes recorded so far that keep `value` keep `source` instead: rule(source) gives the same bits
  // again before the backward of each. Error when `value` is a part of a larger storage.
  void forget(const Tensor& value, const Tensor& source, const Rule& rule);

  // Walks the tape from the loss (one element, gradient 1) or from several outputs with their
  // gradients (same shapes). A tape can be walked once.
  void backward(const Var& loss, const OnReady& on_ready = {});
  // `column_sums` are none, or one a gradient, defined or not, as Gradients has them.
  void backward(std::span<const Var> outputs, std::span<const Tensor> gradients,
                const OnReady& on_ready = {}, std::span<const Tensor> column_sums = {});

  // The gradient of a leaf after backward; undefined when the loss does not depend on it.
  Tensor grad(const Var& leaf) const;
  // What is known of its sums, as Gradients::take_column_sums has them.
  Tensor column_sums(const Var& leaf) const;
  // Gives a leaf a gradient to which backward adds.
  void preset_grad(const Var& leaf, Tensor grad);

  // What was recorded: names in order, and the bytes of the storages kept for backward besides the
  // parameters.
  std::vector<std::string> node_names() const;
  int64_t saved_bytes() const;

 private:
  friend class Gradients;

  struct Slot {
    Shape shape;
    Dtype dtype;                     // of the gradient
    Parameter* parameter = nullptr;  // its grad is this slot's gradient
    int uses = 0;                    // recorded uses whose nodes have not been passed yet

    Tensor grad;         // undefined: empty
    Tensor column_sums;  // of grad, or undefined

    // A view's gradient is a region of its base's. The base lends regions of one buffer to its
    // views as long as they do not overlap; a view that gets none keeps a gradient of its own.
    int base = -1;
    View view;
    bool owns_region = false;
    std::vector<int> views;
    Tensor buffer;  // of the base, undefined until a view asks
  };
  struct Entry {
    std::unique_ptr<Node> node;
    std::vector<int> inputs, outputs;
  };

  int new_slot(const Shape& shape, Dtype dtype);
  int slot_of(const Var& x) const;
  void check_saved(const Entry& entry) const;
  void pass(Entry& entry);
  void release_use(int slot, const OnReady& on_ready);

  void give(int slot, Tensor dx, Tensor column_sums = {});
  void write(int slot, const std::function<void(Tensor, bool)>& write);
  Tensor target_for_first_write(Slot& slot);
  Tensor claim_region(Slot& slot);
  void make_writable(Slot& slot);
  bool lies_in_region(const Slot& slot) const;
  void gather_views(int slot);
  void sum_views(const std::vector<int>& views, Tensor sum);
  void clear_views(Slot& slot);
  Tensor take(int slot);

  const Context& ctx_;
  std::vector<Slot> slots_;
  std::vector<Entry> entries_;
  std::unordered_map<Parameter*, int> parameters_;  // to its slot
  bool walked_ = false;
};

// The tape of the inputs, null when none lies on one; Error when they lie on different tapes.
Tape* common_tape(std::span<const Var> inputs);

// The parameter on the tape, or just its value when there is no tape.
inline Var use(Tape* tape, Parameter& parameter) {
  if (parameter.before_use) parameter.before_use();
  return tape ? tape->parameter(parameter) : Var(parameter.value);
}

// Records NodeType(args...) when an input lies on a tape. Returns the outputs as values.
template <class NodeType, class... Args>
std::vector<Var> record_outputs(std::span<const Var> inputs, std::vector<Tensor> outputs,
                                Args&&... args) {
  Tape* tape = common_tape(inputs);
  if (!tape) return std::vector<Var>(outputs.begin(), outputs.end());
  return tape->add(std::make_unique<NodeType>(std::forward<Args>(args)...), inputs,
                   std::move(outputs));
}

template <class NodeType, class... Args>
Var record(std::initializer_list<Var> inputs, Tensor output, Args&&... args) {
  return record_outputs<NodeType>(std::span(inputs.begin(), inputs.size()), {std::move(output)},
                                  std::forward<Args>(args)...)[0];
}

// A tensor like x to write a result into: x itself when the caller holds it alone, else a fresh
// one.
Tensor reuse_or_empty(const Context& ctx, const Tensor& x);

}  // namespace xtrain
