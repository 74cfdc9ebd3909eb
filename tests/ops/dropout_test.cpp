#include "ops/dropout/dropout.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "support/catch.h"
#include "support/op_tests.h"

using namespace xtrain;
using Floats = std::vector<float>;

namespace {

Context training_context(int threads = 1) {
  Context ctx = cpu_context(threads);
  ctx.training = true;
  ctx.random.seed = 11;
  return ctx;
}

Tensor ones(const Context& ctx, const Shape& shape) {
  return from_host(ctx, Floats(numel_of(shape), 1.0f), shape);
}

Floats values(const Context& ctx, const Tensor& x, const Dropout& d) {
  return to_host<float>(ctx, dropout(ctx, x, d).value);
}

}  // namespace

TEST_CASE("dropout cases", "[ops]") {
  check_op_cases("dropout");
}

TEST_CASE("dropout keeps the documented elements and scales them", "[ops]") {
  Context ctx = training_context();
  const int64_t step = 4, first = 100;
  ctx.random.step = &step;
  ctx.random.first_sequence = &first;
  const Dropout d{.p = 0.25, .site = 9};
  // Longer than the blocks in which numbers are drawn and work is cut.
  const Shape shape{3, 8195};
  const Floats y = values(ctx, ones(ctx, shape), d);
  const RandomStream stream = random_stream(ctx.random, d.site);
  int64_t wrong = 0;
  for (int64_t b = 0; b < shape[0]; ++b) {
    for (int64_t e = 0; e < shape[1]; ++e) {
      const float expected = stream.uniform(first + b, e) >= d.p ? 1.0f / 0.75f : 0.0f;
      wrong += y[b * shape[1] + e] != expected;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("the share of elements that dropout keeps is 1 - p", "[ops]") {
  const Context ctx = training_context(2);
  const int64_t n = 1 << 20;
  for (double p : {0.1, 0.5, 0.9}) {
    const Floats y = values(ctx, ones(ctx, {16, n / 16}), {.p = p});
    const double kept =
        static_cast<double>(std::count_if(y.begin(), y.end(), [](float v) { return v != 0.0f; })) /
        n;
    const double deviation = std::sqrt(p * (1.0 - p) / n);
    INFO("p " << p);
    CHECK(std::abs(kept - (1.0 - p)) < 5.0 * deviation);
  }
}

TEST_CASE("dropout's backward has the mask of its forward and keeps nothing", "[ops]") {
  const Context ctx = training_context();
  Tape tape(ctx);
  const Var x = tape.leaf(ones(ctx, {5, 77}));
  const Var y = dropout(ctx, x, {.p = 0.4, .site = 2});
  CHECK(tape.saved_bytes() == 0);
  CHECK(tape.node_names() == std::vector<std::string>{"dropout"});
  const Tensor dy = ones(ctx, {5, 77});
  tape.backward(std::span(&y, 1), std::span(&dy, 1));
  CHECK(to_host<float>(ctx, tape.grad(x)) == to_host<float>(ctx, y.value));
}

TEST_CASE("a batch in halves draws what the whole batch draws", "[ops]") {
  Context ctx = training_context();
  const Dropout d{.p = 0.3, .site = 1};
  const Tensor x = ones(ctx, {6, 41});
  const Floats whole = values(ctx, x, d);
  int64_t first = 0;
  ctx.random.first_sequence = &first;
  Floats halves = values(ctx, x.slice(0, 0, 3), d);
  first = 3;
  const Floats second = values(ctx, x.slice(0, 3, 3), d);
  halves.insert(halves.end(), second.begin(), second.end());
  CHECK(halves == whole);
}

TEST_CASE("seed, step, site and sequence each change dropout's mask", "[ops]") {
  Context ctx = training_context();
  const Tensor x = ones(ctx, {2, 256});
  const Floats base = values(ctx, x, {.p = 0.5, .site = 1});
  CHECK(values(ctx, x, {.p = 0.5, .site = 1}) == base);
  CHECK(values(ctx, x, {.p = 0.5, .site = 2}) != base);
  CHECK(Floats(base.begin(), base.begin() + 256) != Floats(base.begin() + 256, base.end()));
  const int64_t step = 1;
  ctx.random.step = &step;
  CHECK(values(ctx, x, {.p = 0.5, .site = 1}) != base);
  ctx.random.step = nullptr;
  ctx.random.seed = 12;
  CHECK(values(ctx, x, {.p = 0.5, .site = 1}) != base);
}

TEST_CASE("dropout has the same bits for any number of threads", "[ops]") {
  const Shape shape{3, 20001};
  const auto run = [&](int threads) {
    const Context ctx = training_context(threads);
    return values(ctx, ones(ctx, shape), {.p = 0.1, .site = 4});
  };
  const Floats expected = run(1);
  for (int threads : {2, 3, 8}) CHECK(run(threads) == expected);
}

TEST_CASE("dropout of 0 or outside training is the value itself, without a node", "[ops]") {
  Context ctx = training_context();
  Tape tape(ctx);
  const Var x = tape.leaf(ones(ctx, {2, 3}));
  const Var same = dropout(ctx, x, {.p = 0.0});
  ctx.training = false;
  const Var also = dropout(ctx, x, {.p = 0.5});
  CHECK(same.slot == x.slot);
  CHECK(also.slot == x.slot);
  CHECK(also.value.shares_storage(x.value));
  CHECK(tape.node_names().empty());
}

TEST_CASE("dropped elements are 0 even where the input is not finite", "[ops]") {
  const Context ctx = training_context();
  const Floats mask = values(ctx, ones(ctx, {1, 64}), {.p = 0.5});
  const Floats y = values(ctx, from_host(ctx, Floats(64, INFINITY), {1, 64}), {.p = 0.5});
  for (int i = 0; i < 64; ++i) CHECK(y[i] == (mask[i] == 0.0f ? 0.0f : INFINITY));
}

TEST_CASE("a probability below 0, or of 1 and above, is refused", "[ops]") {
  Context ctx = training_context();
  const Tensor x = ones(ctx, {2});
  CHECK_THROWS_WITH(dropout(ctx, x, {.p = 1.0}), "dropout: p must lie in [0, 1); got 1");
  CHECK_THROWS_WITH(dropout(ctx, x, {.p = -0.5}), "dropout: p must lie in [0, 1); got -0.5");
  ctx.training = false;
  CHECK_THROWS_AS(dropout(ctx, x, {.p = std::nan("")}), Error);
  CHECK_THROWS_WITH(dropout(ctx, ones(ctx, {}), {.p = 0.5}),
                    "dropout: x must be [B, ...]; got shape ()");
}
