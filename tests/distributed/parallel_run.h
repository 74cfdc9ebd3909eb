#pragma once
// Small training runs on several ranks, and what they leave to compare.

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "core/copy.h"
#include "distributed/ddp.h"
#include "distributed/ranks.h"
#include "train/small_run.h"

namespace xtrain {

// A run of several ranks.
struct Run {
  int ranks = 2;
  int64_t steps = 50;
  DataParallelOptions options;
  std::vector<std::string> settings;  // of small_run
};

// Numbers as text and back, to the last bit.
inline std::string to_bytes(const std::vector<double>& values) {
  std::string bytes(values.size() * sizeof(double), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
inline std::vector<double> from_bytes(const std::string& bytes) {
  std::vector<double> values(bytes.size() / sizeof(double));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Binary results are compared by this, since a failing comparison would print them.
inline bool all_equal(const RankResults& results) {
  return std::all_of(results.begin(), results.end(),
                     [&](const std::string& result) { return result == results[0]; });
}

inline std::vector<double> doubles(const Context& ctx, const Tensor& x) {
  return to_host<double>(ctx, cast(ctx, x, Dtype::f64));
}

// Per step the loss, the gradient's norm and a sum over the weights that any changed bit changes
// (modulo the chance of 1 in 2^50); at the end the weights.
inline std::vector<double> record_of(Trainer& trainer, Replica& replica, const Context& ctx,
                                     int64_t steps) {
  std::vector<double> record;
  for (int64_t i = 0; i < steps; ++i) {
    const StepReport report = trainer.train_step();
    replica.gather(trainer.model().parameters().values());
    const std::vector<double> weights = doubles(ctx, trainer.model().parameters().values());
    const size_t hash = std::hash<std::string>{}(to_bytes(weights));
    record.insert(record.end(), {report.loss, report.grad_norm, static_cast<double>(hash >> 12)});
    if (i + 1 == steps) record.insert(record.end(), weights.begin(), weights.end());
  }
  return record;
}

// What every rank recorded, as bytes: threads unless they are to be processes.
inline RankResults train(const Run& run, const std::string& out_dir,
                         std::optional<Backend> processes = std::nullopt) {
  const auto body = [&](const Context& ctx, Communicator& communicator) {
    DataParallel replica(ctx, communicator, run.options);
    Trainer trainer(ctx, small_run(out_dir, run.settings), replica);
    return to_bytes(record_of(trainer, replica, ctx, run.steps));
  };
  return processes ? run_processes(*processes, run.ranks, body) : run_threads(run.ranks, body);
}

// The largest difference of losses, as a share of the loss.
inline double loss_difference(const std::vector<double>& a, const std::vector<double>& b,
                              int64_t steps) {
  double largest = 0.0;
  for (int64_t i = 0; i < steps; ++i) {
    largest = std::max(largest, std::abs(a[3 * i] - b[3 * i]) / std::abs(b[3 * i]));
  }
  return largest;
}

inline std::string set_batch(int64_t rows) {
  return "train.batch_size=" + std::to_string(rows);
}

}  // namespace xtrain
