#pragma once
// Collective operations over the ranks of a run.
//
// All ranks call the same operations in the same order on tensors of the same shape and dtype:
// contiguous ones of f64, f32, bf16, i64 or i32 on the context's device. An operation starts when
// the work that the context's queue holds at the call is done, and runs beside later work: its
// tensors must be left alone until wait_for() or finish(). A call only enqueues; the host does not
// wait for other ranks there.
//
// Sums have the same bits on every rank and in every run.
//
// Errors of an operation, a lost rank or a time-out say, come from later calls or from wait_for(),
// and name the rank when it is known.

#include <cstdint>
#include <string>

#include "core/context.h"
#include "core/tensor.h"

namespace xtrain {

// Seconds of a rank since it connected.
struct CommunicationTime {
  double operations = 0.0;  // from the start of each operation to its end, others' delay included
  double waits = 0.0;       // in which later work had to wait for operations
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Every element becomes its sum over all ranks.
  virtual void all_reduce(const Context& ctx, Tensor values) = 0;
  // values [size * n] of every rank are summed; own [n], the rank's n-th part of values or another
  // tensor, gets the sum of part `rank`. The other parts are undefined afterwards.
  virtual void reduce_scatter(const Context& ctx, Tensor values, Tensor own) = 0;
  // values [size * n] get the n elements of every rank's own, in the order of the ranks. own may be
  // the rank's part of values.
  virtual void all_gather(const Context& ctx, Tensor own, Tensor values) = 0;
  // Every rank's values become those of rank `root`.
  virtual void broadcast(const Context& ctx, Tensor values, int root) = 0;

  // Work that the queue is given after this starts when the first `count` operations, as begun()
  // counts them, are done. On a CPU, whose work is done when a call returns, this waits.
  virtual void wait_for(const Context& ctx, int64_t count) = 0;
  void finish(const Context& ctx) { wait_for(ctx, begun()); }

  // Operations that this rank has called for, from any thread: a rank that is behind the others is
  // the one they wait for.
  virtual int64_t begun() const = 0;
  // Those of them that are done. From any thread.
  virtual int64_t completed() const = 0;
  // Of operations and waits that are over.
  virtual CommunicationTime time() const = 0;
  // Why operations fail, "" as long as they do not. What they were to bring is undefined then, and
  // so is all work since; an operation that fails ends like others, so whoever has waited for the
  // queue's work asks here before it believes in the result.
  virtual std::string failure() const = 0;
  // From any thread: pending and later operations of this rank fail with the reason.
  virtual void abort(const std::string& reason) = 0;
};

}  // namespace xtrain
