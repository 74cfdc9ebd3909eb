#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "core/copy.h"
#include "core/error.h"
#include "ops/attention_run.h"
#include "support/catch.h"
#include "support/op_tests.h"
#include "support/tolerance.h"

using namespace xtrain;

namespace {

constexpr AttentionKind kKinds[] = {AttentionKind::composed, AttentionKind::flash};

Tensor random_tensor(const Context& ctx, const Shape& shape, uint64_t site, Dtype dtype) {
  const RandomStream stream = random_stream(11, 0, site);
  std::vector<double> values(numel_of(shape));
  for (size_t i = 0; i < values.size(); ++i) values[i] = random_normal(stream, 0, i);
  return cast(ctx, cast(ctx, from_host(ctx, values, shape), Dtype::bf16), dtype);
}

using Inputs = AttentionInputs;
using Results = AttentionResults;

Inputs random_inputs(const Context& ctx, const Shape& q, const Shape& kv, Dtype dtype) {
  return Inputs{random_tensor(ctx, q, 0, dtype), random_tensor(ctx, kv, 1, dtype),
                random_tensor(ctx, kv, 2, dtype), random_tensor(ctx, q, 3, dtype)};
}

// Blocks with bytes that read as NaN in every floating type, inside and for a while behind.
class NanAllocator final : public Allocator {
 private:
  static constexpr int64_t kBehind = 4096;

  void* take_block(int64_t bytes) override {
    const int64_t size = (bytes + kBehind) / kAllocationAlignment * kAllocationAlignment;
    void* block = std::aligned_alloc(kAllocationAlignment, size);
    if (block) std::memset(block, 0xff, size);
    return block;
  }
  void return_block(void* block, int64_t) override { std::free(block); }
};

// Memory that runs out after a number of blocks.
class ScarceAllocator final : public Allocator {
 public:
  explicit ScarceAllocator(int blocks) : left_(blocks) {}

 private:
  void* take_block(int64_t bytes) override {
    const int64_t lines = (bytes + kAllocationAlignment - 1) / kAllocationAlignment;
    return --left_ < 0 ? nullptr
                       : std::aligned_alloc(kAllocationAlignment, lines * kAllocationAlignment);
  }
  void return_block(void* block, int64_t) override { std::free(block); }

  std::atomic<int> left_;
};

}  // namespace

TEST_CASE("attention cases", "[ops]") {
  check_op_cases("attention");
}

TEST_CASE("attention of two positions has the values computed by hand", "[ops]") {
  const Context ctx = cpu_context(1);
  const Shape shape{1, 2, 1, 1};
  const Tensor q = from_host(ctx, std::vector<double>{1, 1}, shape);
  const Tensor k = from_host(ctx, std::vector<double>{1, 2}, shape);
  const Tensor v = from_host(ctx, std::vector<double>{3, 5}, shape);
  AttentionOptions options;
  options.scale = 1.0;
  options.mask = causal_mask(ctx, 1, 2, 2);
  for (AttentionKind kind : kKinds) {
    const auto o = to_host<double>(ctx, attention(ctx, q, k, v, options, kind).value);
    CHECK(o[0] == 3.0);
    CHECK(std::abs(o[1] - 4.4621171572600097) < 1e-14);  // (3 e + 5 e^2) / (e + e^2)
  }
}

TEST_CASE("attention records the kind that was asked for", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor x = random_tensor(ctx, {1, 3, 2, 4}, 0, Dtype::f32);
  AttentionOptions options;
  options.mask = causal_mask(ctx, 1, 3, 3);
  const auto recorded = [&](AttentionKind kind, const std::string& node) {
    Tape tape(ctx);
    attention(ctx, tape.leaf(x), x, x, options, kind);
    const std::vector<std::string> names = tape.node_names();
    return std::count(names.begin(), names.end(), node);
  };
  CHECK(recorded(AttentionKind::flash, "flash_attention") == 1);
  CHECK(recorded(AttentionKind::flash, "masked_softmax") == 0);
  CHECK(recorded(AttentionKind::composed, "flash_attention") == 0);
  CHECK(recorded(AttentionKind::composed, "masked_softmax") == 1);
}

TEST_CASE("flash attention of any length equals composed, whatever its memory held", "[ops]") {
  Context poisoned = cpu_context(1);
  poisoned.allocator = std::make_shared<NanAllocator>();
  const Context ctx = cpu_context(1);
  for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    for (int64_t length : {1, 3, 63, 65, 127, 129, 130, 257}) {
      INFO(dtype << ", length " << length);
      const Shape shape{1, length, 2, 64};
      AttentionOptions options;
      options.mask = causal_mask(ctx, 1, length, length);
      const Results expected = run_attention(ctx, random_inputs(ctx, shape, shape, Dtype::f32),
                                             options, AttentionKind::composed);
      options.mask = causal_mask(poisoned, 1, length, length);
      const Results got = run_attention(poisoned, random_inputs(poisoned, shape, shape, dtype),
                                        options, AttentionKind::flash);
      check_close(got, expected, dtype == Dtype::f32 ? 1e-4 : 2e-2);
    }
  }
}

TEST_CASE("attention takes every head_dim from 1 to 256 and refuses others", "[ops]") {
  const Context ctx = cpu_context(1);
  AttentionOptions options;
  options.mask = causal_mask(ctx, 1, 37, 37);
  for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    for (int64_t head_dim : {1, 7, 16, 32, 64, 80, 96, 128, 192, 256}) {
      INFO(dtype << ", head_dim " << head_dim);
      const Inputs in = random_inputs(ctx, {1, 37, 4, head_dim}, {1, 37, 2, head_dim}, dtype);
      check_close(run_attention(ctx, in, options, AttentionKind::flash),
                  run_attention(ctx, in, options, AttentionKind::composed), twin_tolerance(dtype));
    }
  }
  const Tensor wide = zeros(ctx, {1, 37, 2, 257}, Dtype::f32);
  const Tensor none = zeros(ctx, {1, 37, 2, 0}, Dtype::f32);
  for (AttentionKind kind : kKinds) {
    CHECK_THROWS_WITH(attention(ctx, wide, wide, wide, options, kind),
                      "attention: head_dim must be from 1 to 256; got 257");
    CHECK_THROWS_WITH(attention(ctx, none, none, none, options, kind),
                      "attention: head_dim must be from 1 to 256; got 0");
  }
}

TEST_CASE("attention does not look at later tokens nor at other sequences", "[ops]") {
  const Context ctx = cpu_context(1);
  const int64_t length = 130, width = 2 * 16;
  const Shape shape{2, length, 2, 16};
  AttentionOptions options;
  options.mask = causal_mask(ctx, 2, length, length);
  const Inputs in = random_inputs(ctx, shape, shape, Dtype::f32);
  for (AttentionKind kind : kKinds) {
    const std::vector<double> before = run_attention(ctx, in, options, kind).o;
    for (int64_t kept : {1, 15, 63, 64, 65, 129}) {
      INFO("the first " << kept << " tokens");
      Inputs changed = random_inputs(ctx, shape, shape, Dtype::f32);
      for (Tensor* x : {&changed.q, &changed.k, &changed.v}) {
        fill(ctx, x->slice(0, 0, 1).slice(1, kept, length - kept), -3.0);
        fill(ctx, x->slice(0, 1, 1), 5.0);
      }
      const std::vector<double> after = run_attention(ctx, changed, options, kind).o;
      CHECK(std::equal(before.begin(), before.begin() + kept * width, after.begin()));
      CHECK(before[kept * width] != after[kept * width]);
    }
  }
}

TEST_CASE("attention of a batch equals that of its sequences alone", "[ops]") {
  Context ctx = cpu_context(1);
  ctx.training = true;
  const int64_t batch = 3, queries = 20, keys = 70;
  const Inputs in = random_inputs(ctx, {batch, queries, 4, 8}, {batch, keys, 2, 8}, Dtype::f32);
  AttentionOptions options;
  options.dropout = Dropout{.p = 0.2, .site = 4};
  options.mask.position_base = from_host(ctx, std::vector<int32_t>{50, 3, 0}, {batch});
  options.mask.key_length = from_host(ctx, std::vector<int32_t>{70, 23, 20}, {batch});
  for (AttentionKind kind : kKinds) {
    const Results all = run_attention(ctx, in, options, kind);
    Results joined;
    for (int64_t b = 0; b < batch; ++b) {
      const auto row = [&](const Tensor& x) { return x.slice(0, b, 1); };
      Context one = ctx;
      one.random.first_sequence = &b;
      AttentionOptions alone = options;
      alone.mask.position_base = row(options.mask.position_base);
      alone.mask.key_length = row(options.mask.key_length);
      const Results r =
          run_attention(one, {row(in.q), row(in.k), row(in.v), row(in.dy)}, alone, kind);
      joined.o.insert(joined.o.end(), r.o.begin(), r.o.end());
      joined.dq.insert(joined.dq.end(), r.dq.begin(), r.dq.end());
      joined.dk.insert(joined.dk.end(), r.dk.begin(), r.dk.end());
      joined.dv.insert(joined.dv.end(), r.dv.begin(), r.dv.end());
    }
    CHECK(joined.o == all.o);
    CHECK(joined.dq == all.dq);
    CHECK(joined.dk == all.dk);
    CHECK(joined.dv == all.dv);
  }
}

TEST_CASE("memory of flash attention grows with the length, of composed with its square", "[ops]") {
  const auto peak = [](int64_t length, AttentionKind kind) {
    const Context ctx = cpu_context(1);
    const Shape shape{1, length, 2, 16};
    AttentionOptions options;
    options.mask = causal_mask(ctx, 1, length, length);
    const Inputs in = random_inputs(ctx, shape, shape, Dtype::f32);
    ctx.allocator->reset_peak();
    run_attention(ctx, in, options, kind);
    return static_cast<double>(ctx.allocator->peak_bytes());
  };
  CHECK(peak(1024, AttentionKind::flash) < 2.0 * peak(512, AttentionKind::flash));
  CHECK(peak(1024, AttentionKind::composed) > 3.5 * peak(512, AttentionKind::composed));
}

TEST_CASE("flash attention keeps its inputs, its output and one number a row", "[ops]") {
  const Context ctx = cpu_context(1);
  const int64_t batch = 2, length = 96, heads = 3, head_dim = 16;
  const Inputs in = random_inputs(ctx, {batch, length, heads, head_dim},
                                  {batch, length, heads, head_dim}, Dtype::f32);
  AttentionOptions options;
  options.mask = causal_mask(ctx, batch, length, length);
  Tape tape(ctx);
  attention_flash(ctx, tape.leaf(in.q), tape.leaf(in.k), tape.leaf(in.v), options);
  const int64_t rows = batch * length * heads, mask_bytes = 2 * batch * 4;
  CHECK(tape.saved_bytes() == 4 * rows * head_dim * 4 + rows * 4 + mask_bytes);
}

TEST_CASE("attention that runs out of memory anywhere is a clean error", "[ops]") {
  Context ctx = cpu_context(2);
  const Context plenty = cpu_context(2);
  const Shape shape{2, 70, 2, 8};
  const Inputs in = random_inputs(plenty, shape, shape, Dtype::f32);
  AttentionOptions options;
  options.mask = causal_mask(plenty, 2, 70, 70);
  for (AttentionKind kind : kKinds) {
    int blocks = 0;
    for (bool enough = false; !enough; ++blocks) {
      ctx.allocator = std::make_shared<ScarceAllocator>(blocks);
      try {
        run_attention(ctx, in, options, kind);
        enough = true;
      } catch (const Error& error) {
        REQUIRE(std::string(error.what()).find("out of memory") != std::string::npos);
      }
    }
    CHECK(blocks > 4);
  }
}

TEST_CASE("attention of huge scores stays finite", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor q = from_host(ctx, std::vector<float>{1e4f, 1e4f, -1e4f}, {1, 3, 1, 1});
  const Tensor k = from_host(ctx, std::vector<float>{1, -1, 2}, {1, 3, 1, 1});
  const Tensor v = from_host(ctx, std::vector<float>{3, 5, 7}, {1, 3, 1, 1});
  AttentionOptions options;
  options.scale = 1.0;
  options.mask = causal_mask(ctx, 1, 3, 3);
  for (AttentionKind kind : kKinds) {
    const Results r = run_attention(ctx, {q, k, v, v}, options, kind);
    CHECK(r.o == std::vector<double>{3, 3, 5});
    CHECK(r.dq == std::vector<double>{0, 0, 0});
    CHECK(r.dk == std::vector<double>{0, 0, 0});
    CHECK(r.dv == std::vector<double>{8, 7, 0});
  }
}

TEST_CASE("attention refuses what does not fit together", "[ops]") {
  const Context ctx = cpu_context(1);
  const auto make = [&](const Shape& shape) { return zeros(ctx, shape, Dtype::f32); };
  AttentionOptions options;
  options.mask = causal_mask(ctx, 2, 4, 4);
  const Tensor x = make({2, 4, 3, 8});
  for (AttentionKind kind : kKinds) {
    const auto call = [&](const Tensor& q, const Tensor& kv, const AttentionOptions& o) {
      attention(ctx, q, kv, kv, o, kind);
    };
    CHECK_THROWS_WITH(call(x, make({2, 4, 2, 8}), options),
                      "attention: 2 key heads must divide 3 query heads");
    CHECK_THROWS_WITH(
        call(x, make({2, 4, 3, 7}), options),
        "attention: k and v must have one shape, and the batch and head_dim of q; got "
        "(2, 4, 3, 8), (2, 4, 3, 7), (2, 4, 3, 7)");
    CHECK_THROWS_WITH(call(x, cast(ctx, x, Dtype::f64), options),
                      "attention: q, k and v must have one dtype; got f32, f64, f64");
    AttentionOptions wrong = options;
    wrong.mask.key_length = from_host(ctx, std::vector<int32_t>{4, 5}, {2});
    CHECK_THROWS_WITH(call(x, x, wrong),
                      "attention: key_length must lie in [0, 5); got 5 at position 1");
    wrong.mask.key_length = from_host(ctx, std::vector<int32_t>{-1, 4}, {2});
    CHECK_THROWS_WITH(call(x, x, wrong),
                      "attention: key_length must lie in [0, 5); got -1 at position 0");
    wrong.mask.key_length = Tensor();
    CHECK_THROWS_WITH(call(x, x, wrong),
                      "attention: the mask's key_length must be given; see causal_mask");
    wrong = options;
    wrong.mask.document_start = from_host(ctx, std::vector<int32_t>{0, 0}, {2});
    CHECK_THROWS_WITH(call(x, x, wrong),
                      "attention: the mask's document_start must be i32 (2, 4); got i32 (2)");
    wrong = options;
    wrong.mask.window = -1;
    CHECK_THROWS_WITH(call(x, x, wrong), "attention: window must be 0 or more; got -1");
    wrong = options;
    wrong.dropout.p = 1.0;
    CHECK_THROWS_WITH(call(x, x, wrong), "dropout: p must lie in [0, 1); got 1");
  }
}
