#pragma once
// Data-parallel training: every rank works on its own rows of a batch and all end a step with the
// same weights. Gradients are summed over the ranks bucket by bucket while backward goes on.
//
// zero (ZeRO stage 1: Rajbhandari and others, arXiv 1910.02054): each rank receives the sums of a
// share of every bucket only, updates that share of the weights, and sends it to the others.

#include <cstdint>
#include <optional>

#include "core/context.h"
#include "distributed/buckets.h"
#include "distributed/communicator.h"
#include "train/replica.h"

namespace xtrain {

struct DataParallelOptions {
  bool zero = false;
  // Gradients travel, and are summed where the backend does not know better, as bf16: half the
  // bytes, fewer digits.
  bool reduce_in_bf16 = false;
  int64_t bucket_bytes = int64_t{25} << 20;  // of gradients as they travel
  // Buckets leave while backward goes on; else all of them when it has ended. The same bits.
  bool overlap = true;
};

class DataParallel final : public Replica {
 public:
  // The context must be the trainer's. The communicator must outlive this.
  DataParallel(const Context& ctx, Communicator& communicator,
               const DataParallelOptions& options = {});

  int rank() const override { return communicator_.rank(); }
  int size() const override { return communicator_.size(); }
  // Error naming the rank whose model or options are others.
  void attach(ParameterSet& parameters) override;
  void grad_ready(Parameter& parameter) override;
  void finish_grads() override;
  // Adds in the order of the ranks.
  void sum(const Context& ctx, Tensor values) override;
  ArenaRanges owned() const override;
  ArenaRanges share() const override;
  void updated(ArenaRange range) override;
  void gather(Tensor arena) override;
  // The host waits for collectives and watches them.
  Recordable recordable() const override {
    return options_.overlap ? Recordable::nothing : Recordable::gradients;
  }
  void check_others() const override;

 private:
  void check_same_layout();
  void start(ArenaRange bucket);
  void zero_missing(ArenaRange bucket);
  void start_gathering(const Tensor& arena, ArenaRange bucket);
  void await_value(const Parameter& parameter);
  ArenaRange share_of(ArenaRange bucket) const;
  ArenaRange rest_of(ArenaRange bucket) const;

  const Context ctx_;
  Communicator& communicator_;
  const DataParallelOptions options_;
  ParameterSet* parameters_ = nullptr;
  std::optional<Buckets> buckets_;
  int64_t bucket_elements_ = 0;
  // As the communicator counts operations: that which gathers each bucket's values, and those that
  // the context's queue has waited for.
  std::vector<int64_t> gathering_;
  int64_t awaited_ = 0;
  Tensor travelling_;  // an arena of gradients as they travel: the gradients themselves, or bf16
};

}  // namespace xtrain
