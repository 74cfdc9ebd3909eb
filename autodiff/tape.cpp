#include "autodiff/tape.h"

#include <algorithm>

#include "core/copy.h"
#include "core/error.h"

namespace xtrain {

Saved::Saved(Node& owner, const Tensor& tensor) {
  reset(tensor);
  owner.saved_.push_back(this);
}

void Saved::reset(const Tensor& tensor) {
  tensor_ = tensor;
  version_ = tensor.defined() ? tensor.version() : 0;
}

namespace {

// Has no work of its own: its output's gradient lies in, or is gathered into, its input's.
class ViewNode final : public Node {
 public:
  explicit ViewNode(const char* name) : name_(name) {}
  const char* name() const override { return name_; }
  void backward(Gradients&) override {}

 private:
  const char* name_;
};

// A node that keeps the source of a tensor instead of the tensor, until its backward.
class ForgetfulNode final : public Node {
 public:
  ForgetfulNode(std::unique_ptr<Node> node, std::vector<Saved*> forgotten, const Tensor& source,
                const Rule& rule)
      : node_(std::move(node)),
        forgotten_(std::move(forgotten)),
        source_(*this, source),
        rule_(rule) {
    remember(Tensor());
    saved_.insert(saved_.end(), node_->saved().begin(), node_->saved().end());
  }
  const char* name() const override { return node_->name(); }

  void backward(Gradients& g) override {
    remember(rule_(*source_));
    node_->backward(g);
  }

 private:
  void remember(const Tensor& value) {
    for (Saved* saved : forgotten_) saved->reset(value);
  }

  std::unique_ptr<Node> node_;
  std::vector<Saved*> forgotten_;  // of node_
  Saved source_;
  Rule rule_;
};

bool is_same_view(const Tensor& a, const Tensor& b) {
  return a.shares_storage(b) && a.shape() == b.shape() && a.strides() == b.strides();
}

bool is_disjoint_from_all(const View& view, const std::vector<View>& others) {
  return std::all_of(others.begin(), others.end(),
                     [&](const View& other) { return view.disjoint_from(other); });
}

// Zeroes what the given views leave of the buffer: disjoint slices of one dimension, or one view
// that covers it all.
void zero_holes(const Context& ctx, const Tensor& buffer, std::vector<View> views) {
  if (views.empty()) return fill(ctx, buffer, 0.0);
  if (views[0].covers_base()) return;
  std::sort(views.begin(), views.end(),
            [](const View& a, const View& b) { return a.start < b.start; });
  const int dim = views[0].dim;  // of every slice
  int64_t end = 0;
  for (const View& slice : views) {
    if (slice.start > end) fill(ctx, buffer.slice(dim, end, slice.start - end), 0.0);
    end = std::max(end, slice.start + slice.length);
  }
  const int64_t size = buffer.size(dim);
  if (size > end) fill(ctx, buffer.slice(dim, end, size - end), 0.0);
}

}  // namespace

Tape* common_tape(std::span<const Var> inputs) {
  Tape* tape = nullptr;
  for (const Var& x : inputs) {
    if (!x.tape) continue;
    check(!tape || tape == x.tape, "tape: inputs of one op must lie on one tape");
    tape = x.tape;
  }
  return tape;
}

Tensor reuse_or_empty(const Context& ctx, const Tensor& x) {
  return x.is_sole_holder() && x.is_contiguous() ? x : empty_like(ctx, x);
}

// --- recording -----------------------------------------------------------------------------------

int Tape::new_slot(const Shape& shape, Dtype dtype) {
  Slot slot;
  slot.shape = shape;
  slot.dtype = dtype;
  slots_.push_back(std::move(slot));
  return static_cast<int>(slots_.size()) - 1;
}

int Tape::slot_of(const Var& x) const {
  return x.tape ? x.slot : -1;
}

Var Tape::parameter(Parameter& parameter) {
  if (!parameter.trainable) return Var(parameter.value);
  if (const auto known = parameters_.find(&parameter); known != parameters_.end()) {
    return Var(parameter.value, this, known->second);
  }
  const int slot = new_slot(parameter.value.shape(), accumulator_dtype(parameter.value.dtype()));
  slots_[slot].parameter = &parameter;
  parameters_.emplace(&parameter, slot);
  return Var(parameter.value, this, slot);
}

Var Tape::leaf(const Tensor& value) {
  return leaf(value, accumulator_dtype(value.dtype()));
}

Var Tape::leaf(const Tensor& value, Dtype grad_dtype) {
  check(is_floating(value.dtype()), "tape: a leaf must have a floating dtype; got ", value.dtype());
  return Var(value, this, new_slot(value.shape(), grad_dtype));
}

std::vector<Var> Tape::add(std::unique_ptr<Node> node, std::span<const Var> inputs,
                           std::vector<Tensor> outputs) {
  check(!walked_, "tape: ", node->name(), " cannot be recorded after backward; use a fresh tape");
  Entry entry;
  for (const Var& x : inputs) {
    entry.inputs.push_back(slot_of(x));
    if (x.tape) ++slots_[x.slot].uses;
  }
  std::vector<Var> results;
  for (Tensor& output : outputs) {
    if (!is_floating(output.dtype())) {  // counts and indices have no gradient
      entry.outputs.push_back(-1);
      results.emplace_back(std::move(output));
      continue;
    }
    const int slot = new_slot(output.shape(), output.dtype());
    entry.outputs.push_back(slot);
    results.emplace_back(std::move(output), this, slot);
  }
  entry.node = std::move(node);
  entries_.push_back(std::move(entry));
  return results;
}

Var Tape::add_view(const Var& x, const View& view, Tensor value, const char* name) {
  const Var result = add(std::make_unique<ViewNode>(name), std::span(&x, 1), {std::move(value)})[0];
  Slot& slot = slots_[result.slot];
  slot.dtype = slots_[x.slot].dtype;
  slot.base = x.slot;
  slot.view = view;
  slots_[x.slot].views.push_back(result.slot);
  return result;
}

void Tape::forget(const Tensor& value, const Tensor& source, const Rule& rule) {
  check(value.nbytes() == value.storage_bytes(),
        "tape: only a whole storage can be forgotten; got ", value.nbytes(), " bytes of ",
        value.storage_bytes());
  for (Entry& entry : entries_) {
    std::vector<Saved*> keepers;
    for (Saved* saved : entry.node->saved()) {
      if (is_same_view(saved->tensor(), value)) keepers.push_back(saved);
    }
    if (keepers.empty()) continue;
    entry.node = std::make_unique<ForgetfulNode>(std::move(entry.node), keepers, source, rule);
  }
}

// --- walking -------------------------------------------------------------------------------------

void Tape::backward(const Var& loss, const OnReady& on_ready) {
  check(loss.tape == this, "backward: the loss must lie on this tape; it depends on no parameter");
  check(loss.value.numel() == 1, "backward: the loss must have one element; got shape ",
        loss.shape());
  Tensor one = empty_like(ctx_, loss.value);
  fill(ctx_, one, 1.0);
  backward(std::span(&loss, 1), std::span(&one, 1), on_ready);
}

void Tape::backward(std::span<const Var> outputs, std::span<const Tensor> gradients,
                    const OnReady& on_ready, std::span<const Tensor> column_sums) {
  check(!walked_,
        "backward: this tape has been walked and its nodes freed; record the forward again");
  check(outputs.size() == gradients.size(), "backward: ", outputs.size(), " outputs need as many ",
        "gradients; got ", gradients.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].tape && gradients[i].defined()) {
      check(outputs[i].tape == this, "backward: outputs must lie on this tape");
      give(outputs[i].slot, gradients[i], column_sums.empty() ? Tensor() : column_sums[i]);
    }
  }
  walked_ = true;
  while (!entries_.empty()) {
    Entry entry = std::move(entries_.back());
    entries_.pop_back();
    pass(entry);
    for (int slot : entry.inputs) release_use(slot, on_ready);
  }
  for (size_t i = 0; i < slots_.size(); ++i) gather_views(static_cast<int>(i));
}

// Runs the node's backward if the loss depends on one of its outputs.
void Tape::pass(Entry& entry) {
  bool reached = false;
  for (int slot : entry.outputs) {
    if (slot < 0) continue;
    gather_views(slot);
    reached = reached || slots_[slot].grad.defined();
  }
  if (!reached) return;
  check_saved(entry);
  Gradients gradients(*this, entry.inputs, entry.outputs);
  entry.node->backward(gradients);
  for (int slot : entry.outputs) {
    // A view's gradient stays until its base gathers it.
    if (slot >= 0 && slots_[slot].base < 0) {
      slots_[slot].grad = slots_[slot].column_sums = Tensor();
    }
  }
}

void Tape::check_saved(const Entry& entry) const {
  for (const Saved* saved : entry.node->saved()) {
    check(!saved->changed(), "backward: a tensor of shape ", (*saved)->shape(), " kept by ",
          entry.node->name(), " was changed in place since; write to a copy instead");
  }
}

void Tape::release_use(int slot, const OnReady& on_ready) {
  if (slot < 0) return;
  if (--slots_[slot].uses > 0 || !slots_[slot].parameter) return;
  gather_views(slot);
  if (on_ready) on_ready(*slots_[slot].parameter);
}

// --- gradients -----------------------------------------------------------------------------------

void Tape::give(int id, Tensor dx, Tensor column_sums) {
  Slot& slot = slots_[id];
  check(dx.shape() == slot.shape, "backward: a gradient must have its value's shape ", slot.shape,
        "; got ", dx.shape());
  if (slot.parameter) {
    write(id, [&](Tensor target, bool accumulate) {
      accumulate ? add_into(ctx_, dx, target) : copy(ctx_, dx, target);
    });
  } else if (!slot.grad.defined()) {
    slot.grad = cast(ctx_, dx, slot.dtype);
    slot.column_sums = std::move(column_sums);
  } else {
    make_writable(slot);
    add_into(ctx_, dx, slot.grad);
    slot.column_sums = Tensor();
  }
}

void Tape::write(int id, const std::function<void(Tensor, bool)>& write) {
  Slot& slot = slots_[id];
  if (Parameter* p = slot.parameter) {
    if (!p->grad.defined()) p->grad = empty(ctx_, slot.shape, slot.dtype);
    write(p->grad, p->has_grad);
    p->has_grad = true;
  } else if (!slot.grad.defined()) {
    Tensor target = target_for_first_write(slot);
    write(target, false);
    slots_[id].grad = target;
    slots_[id].column_sums = Tensor();
  } else {
    make_writable(slot);
    write(slot.grad, true);
    slot.column_sums = Tensor();
  }
}

// After this the slot's gradient may be added to in place.
void Tape::make_writable(Slot& slot) {
  const bool exclusive = slot.grad.is_sole_holder() && slot.grad.is_contiguous();
  if (exclusive || lies_in_region(slot)) return;
  Tensor fresh = empty(ctx_, slot.shape, slot.dtype);
  copy(ctx_, slot.grad, fresh);
  slot.grad = fresh;
}

// Whether the gradient is the region that the base lent, so that gathering it is no work.
bool Tape::lies_in_region(const Slot& slot) const {
  if (!slot.owns_region || !slot.grad.defined()) return false;
  const Tensor& buffer = slots_[slot.base].buffer;
  return buffer.defined() && slot.grad.shares_storage(buffer);
}

Tensor Tape::target_for_first_write(Slot& slot) {
  if (slot.base >= 0) {
    Tensor region = claim_region(slot);
    if (region.defined()) return region;
  }
  return empty(ctx_, slot.shape, slot.dtype);
}

// The view's region of its base's buffer, or undefined when it cannot be lent.
Tensor Tape::claim_region(Slot& slot) {
  Slot& base = slots_[slot.base];
  for (int other : base.views) {
    const Slot& lent = slots_[other];
    if (lent.owns_region && !slot.view.disjoint_from(lent.view)) return Tensor();
  }
  if (!base.buffer.defined()) base.buffer = target_for_first_write(base);
  if (!slot.view.can_apply(base.buffer)) return Tensor();
  slot.owns_region = true;
  return slot.view.apply(base.buffer);
}

// Adds the gradients of the slot's views to its own. The views' gradients must be final.
void Tape::gather_views(int id) {
  std::vector<int> with_grad;
  for (int v : slots_[id].views) {
    gather_views(v);
    if (slots_[v].grad.defined()) with_grad.push_back(v);
  }
  Slot& slot = slots_[id];
  if (with_grad.empty()) return clear_views(slot);
  const Slot& first = slots_[with_grad[0]];
  const bool whole = with_grad.size() == 1 && first.view.covers_base();
  Tensor sum;
  if (whole && !lies_in_region(first)) {
    sum = first.view.invert(ctx_, first.grad, slot.shape);
  } else {
    sum = slot.buffer.defined() ? slot.buffer : empty(ctx_, slot.shape, slot.dtype);
    if (!whole) sum_views(with_grad, sum);
  }
  clear_views(slot);
  give(id, std::move(sum));
}

// sum = the views' gradients, each in its place, where those that lie in regions of sum already do.
// A view that meets no element written so far is copied, the others are added to what is there.
void Tape::sum_views(const std::vector<int>& views, Tensor sum) {
  std::vector<View> written;
  for (int v : views) {
    if (lies_in_region(slots_[v])) written.push_back(slots_[v].view);
  }
  std::vector<int> added;
  for (int v : views) {
    const Slot& slot = slots_[v];
    if (lies_in_region(slot)) continue;
    if (slot.view.can_apply(sum) && is_disjoint_from_all(slot.view, written)) {
      copy(ctx_, slot.grad, slot.view.apply(sum));
      written.push_back(slot.view);
    } else {
      added.push_back(v);
    }
  }
  zero_holes(ctx_, sum, std::move(written));
  for (int v : added) {
    const Slot& slot = slots_[v];
    if (slot.view.can_apply(sum)) {
      add_into(ctx_, slot.grad, slot.view.apply(sum));
    } else {
      add_into(ctx_, slot.view.invert(ctx_, slot.grad, sum.shape()), sum);
    }
  }
}

void Tape::clear_views(Slot& slot) {
  for (int v : slot.views) slots_[v].grad = slots_[v].column_sums = Tensor();
  slot.views.clear();
  slot.buffer = Tensor();
}

Tensor Tape::take(int id) {
  return std::move(slots_[id].grad);
}

Tensor Tape::grad(const Var& leaf) const {
  check(leaf.tape == this, "tape: the gradient of a value that is not on this tape was asked for");
  return slots_[leaf.slot].grad;
}

Tensor Tape::column_sums(const Var& leaf) const {
  check(leaf.tape == this, "tape: the sums of a gradient that is not on this tape were asked for");
  return slots_[leaf.slot].column_sums;
}

void Tape::preset_grad(const Var& leaf, Tensor grad) {
  check(leaf.tape == this, "tape: the gradient of a value that is not on this tape was given");
  slots_[leaf.slot].grad = std::move(grad);
}

// --- what a node sees ----------------------------------------------------------------------------

const Context& Gradients::ctx() const {
  return tape_.ctx();
}

Tensor Gradients::take(int output) {
  const int slot = outputs_[output];
  return slot < 0 ? Tensor() : tape_.take(slot);
}

Tensor Gradients::take_column_sums(int output) {
  const int slot = outputs_[output];
  return slot < 0 ? Tensor() : std::move(tape_.slots_[slot].column_sums);
}

bool Gradients::wanted(int input) const {
  return inputs_[input] >= 0;
}

Dtype Gradients::dtype(int input) const {
  return tape_.slots_[inputs_[input]].dtype;
}

void Gradients::give(int input, Tensor dx, Tensor column_sums) {
  if (wanted(input)) tape_.give(inputs_[input], std::move(dx), std::move(column_sums));
}

void Gradients::write(int input, const std::function<void(Tensor, bool)>& write) {
  if (wanted(input)) tape_.write(inputs_[input], write);
}

void Gradients::write_as(int input, Dtype dtype, const std::function<void(Tensor, bool)>& write) {
  if (!wanted(input)) return;
  const auto& slot = tape_.slots_[inputs_[input]];
  if (slot.dtype == dtype) return tape_.write(inputs_[input], write);
  Tensor fresh = empty(ctx(), slot.shape, dtype);
  write(fresh, false);
  tape_.give(inputs_[input], std::move(fresh));
}

Tensor Gradients::release(int input) {
  return wanted(input) ? std::move(tape_.slots_[inputs_[input]].grad) : Tensor();
}

// --- what was recorded ---------------------------------------------------------------------------

std::vector<std::string> Tape::node_names() const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) names.emplace_back(entry.node->name());
  return names;
}

int64_t Tape::saved_bytes() const {
  std::vector<Tensor> seen;  // parameters are there anyway
  for (const auto& [parameter, slot] : parameters_) seen.push_back(parameter->value);
  int64_t bytes = 0;
  for (const Entry& entry : entries_) {
    for (const Saved* saved : entry.node->saved()) {
      const Tensor& x = saved->tensor();
      const auto shares = [&](const Tensor& t) { return t.shares_storage(x); };
      if (!x.defined() || std::any_of(seen.begin(), seen.end(), shares)) continue;
      seen.push_back(x);
      bytes += x.storage_bytes();
    }
  }
  return bytes;
}

}  // namespace xtrain
