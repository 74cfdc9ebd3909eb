// Parameters with rows of zeros behind them, under the optimizer and in checkpoints.

#include <optional>

#include "support/temporary_folder.h"
#include "train/checkpoint.h"
#include "train/optimizer_checks.h"

using namespace xtrain;

namespace {

constexpr int64_t kRows = 50, kWidth = 5, kZeroRows = 14;

struct Head {
  Head(const Context& ctx, Dtype dtype, int64_t zero_rows, uint64_t seed) {
    set.add("norm", {kWidth}, ParameterKind::vector, 1.0, 0.0);
    weight = &set.add("head", {kRows, kWidth}, ParameterKind::matrix, 0.0, 1.0);
    weight->zero_rows = zero_rows;
    set.allocate(ctx, dtype);
    optimizer.emplace(ctx, set, AdamWOptions{}, ArenaRanges{ArenaRange{0, set.arena_size()}});
    optimizer->initialize(ctx, seed);
  }

  void train(const Context& ctx, int steps) {
    for (int t = 1; t <= steps; ++t) {
      for (Parameter& p : set.list()) {
        copy(ctx, initial_value(ctx, p, 100 + t), p.grad);
        p.has_grad = true;
      }
      take_step(ctx, *optimizer, set, t, 0.1, 1.0, 1.0);
    }
  }

  // Values, masters and moments, by parameter.
  std::vector<std::vector<double>> state(const Context& ctx) const {
    const AdamWState s = optimizer->state(ctx);
    std::vector<std::vector<double>> all;
    for (const Tensor& arena : {set.values(), s.masters, s.first_moments, s.second_moments}) {
      for (const Parameter& p : set.list()) all.push_back(doubles(ctx, set.slice_of(arena, p)));
    }
    return all;
  }

  void check_zeros(const Context& ctx) const {
    const AdamWState s = optimizer->state(ctx);
    for (const Tensor& arena :
         {set.values(), set.grads(), s.masters, s.first_moments, s.second_moments}) {
      const Tensor behind = set.slice_of(arena, *weight).with_rows_behind(weight->zero_rows);
      CHECK(doubles(ctx, behind.slice(0, kRows, weight->zero_rows)) ==
            std::vector<double>(weight->zero_rows * kWidth, 0.0));
    }
  }

  ParameterSet set;
  Parameter* weight;
  std::optional<AdamW> optimizer;
};

}  // namespace

TEST_CASE("AdamW leaves rows of zeros behind a parameter zero", "[train]") {
  const Context ctx = cpu_context(1);
  for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    Head padded(ctx, dtype, kZeroRows, 1), plain(ctx, dtype, 0, 1);
    padded.train(ctx, 3);
    plain.train(ctx, 3);
    padded.check_zeros(ctx);
    CHECK(padded.state(ctx) == plain.state(ctx));
  }
}

TEST_CASE("checkpoints know nothing of rows of zeros", "[train]") {
  const Context ctx = cpu_context(1);
  for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    for (const int64_t zero_rows : {int64_t{0}, kZeroRows}) {
      INFO(dtype << ", written with " << zero_rows << " rows");
      const TemporaryFolder folder;
      Head writer(ctx, dtype, zero_rows, 1), reader(ctx, dtype, kZeroRows - zero_rows, 2);
      writer.train(ctx, 3);
      const std::string saved = save_checkpoint(ctx, folder.path.string(), {.step = 3}, writer.set,
                                                writer.optimizer->state(ctx), {});
      const AdamWState state = reader.optimizer->state(ctx);
      CHECK(load_checkpoint(ctx, saved, reader.set, state).step == 3);
      reader.optimizer->set_state(ctx, state);
      CHECK(reader.state(ctx) == writer.state(ctx));
      reader.check_zeros(ctx);
      CHECK(weights_checksum(ctx, reader.set, state.masters) ==
            weights_checksum(ctx, writer.set, writer.optimizer->state(ctx).masters));
    }
  }
}
