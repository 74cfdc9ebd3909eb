// Which keys a query sees.

#include <algorithm>
#include <cmath>

#include "core/copy.h"
#include "ops/attention/attention.h"
#include "support/catch.h"
#include "support/op_tests.h"
#include "support/tolerance.h"

using namespace xtrain;

namespace {

constexpr AttentionKind kKinds[] = {AttentionKind::composed, AttentionKind::flash};
constexpr int64_t kBatch = 2, kHeads = 4, kKvHeads = 2, kHeadDim = 3;

struct MaskValues {
  bool causal;
  int64_t window;
  std::vector<int32_t> base, length, start;  // start [B, Tq] or empty
};

bool sees(const MaskValues& m, int64_t queries, int64_t keys, int64_t b, int64_t t, int64_t j) {
  const int64_t position = m.base[b] + t;
  if (j >= keys || j >= m.length[b]) return false;
  if (m.causal && j > position) return false;
  if (m.window > 0 && j <= position - m.window) return false;
  return m.start.empty() || j >= m.start[b * queries + t];
}

std::vector<double> values_of(uint64_t site, int64_t count) {
  const RandomStream stream = random_stream(3, 0, site);
  std::vector<double> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = random_normal(stream, 0, i);
  return values;
}

// Attention of one head of one query, from the definition.
std::vector<double> expected_output(const MaskValues& m, int64_t queries, int64_t keys,
                                    const std::vector<double>& q, const std::vector<double>& k,
                                    const std::vector<double>& v) {
  std::vector<double> o(q.size(), 0.0);
  for (int64_t row = 0; row < kBatch * queries * kHeads; ++row) {
    const int64_t h = row % kHeads, t = row / kHeads % queries, b = row / kHeads / queries;
    const auto key_row = [&](int64_t j) {
      return ((b * keys + j) * kKvHeads + h / (kHeads / kKvHeads)) * kHeadDim;
    };
    double sum = 0.0;
    for (int64_t j = 0; j < keys; ++j) {
      if (!sees(m, queries, keys, b, t, j)) continue;
      double dot = 0.0;
      for (int64_t d = 0; d < kHeadDim; ++d) dot += q[row * kHeadDim + d] * k[key_row(j) + d];
      const double weight = std::exp(dot / std::sqrt(double{kHeadDim}));
      sum += weight;
      for (int64_t d = 0; d < kHeadDim; ++d) o[row * kHeadDim + d] += weight * v[key_row(j) + d];
    }
    for (int64_t d = 0; d < kHeadDim && sum > 0.0; ++d) o[row * kHeadDim + d] /= sum;
  }
  return o;
}

AttentionOptions options_of(const Context& ctx, const MaskValues& m, int64_t queries) {
  AttentionOptions options;
  options.mask.causal = m.causal;
  options.mask.window = m.window;
  options.mask.position_base = from_host(ctx, m.base, {kBatch});
  options.mask.key_length = from_host(ctx, m.length, {kBatch});
  if (!m.start.empty()) options.mask.document_start = from_host(ctx, m.start, {kBatch, queries});
  return options;
}

void check_mask(const MaskValues& m, int64_t queries, int64_t keys) {
  const Context ctx = cpu_context(1);
  const std::vector<double> q = values_of(0, kBatch * queries * kHeads * kHeadDim);
  const std::vector<double> k = values_of(1, kBatch * keys * kKvHeads * kHeadDim);
  const std::vector<double> v = values_of(2, kBatch * keys * kKvHeads * kHeadDim);
  const Shape q_shape{kBatch, queries, kHeads, kHeadDim}, k_shape{kBatch, keys, kKvHeads, kHeadDim};
  const std::vector<double> expected = expected_output(m, queries, keys, q, k, v);
  for (AttentionKind kind : kKinds) {
    const Var o = attention(ctx, from_host(ctx, q, q_shape), from_host(ctx, k, k_shape),
                            from_host(ctx, v, k_shape), options_of(ctx, m, queries), kind);
    CHECK(relative_difference(to_host<double>(ctx, o.value), expected) <=
          tolerance(Dtype::f64, keys));
  }
}

// One head, four queries and keys, all visible but for what query 1 sees: nothing.
struct BlockedRow {
  Context ctx = cpu_context(1);
  std::vector<float> q{0.5f, -1.0f, 2.0f, 0.25f}, dy{1.0f, 1.0f, 1.0f, 1.0f};

  std::vector<std::vector<float>> run(AttentionKind kind) const {
    const Shape shape{1, 4, 1, 1};
    AttentionOptions options;
    options.mask = causal_mask(ctx, 1, 4, 4);
    options.mask.causal = false;
    options.mask.document_start = from_host(ctx, std::vector<int32_t>{0, 4, 0, 0}, {1, 4});
    Tape tape(ctx);
    const Var vq = tape.leaf(from_host(ctx, q, shape));
    const Var vk = tape.leaf(from_host(ctx, std::vector<float>{1.0f, 0.5f, -2.0f, 0.75f}, shape));
    const Var vv = tape.leaf(from_host(ctx, std::vector<float>{3.0f, -1.0f, 2.0f, 4.0f}, shape));
    const Var o = attention(ctx, vq, vk, vv, options, kind);
    const Tensor upstream = from_host(ctx, dy, shape);
    tape.backward(std::span(&o, 1), std::span(&upstream, 1));
    return {to_host<float>(ctx, o.value), to_host<float>(ctx, tape.grad(vq)),
            to_host<float>(ctx, tape.grad(vk)), to_host<float>(ctx, tape.grad(vv))};
  }
};

}  // namespace

TEST_CASE("attention sees the keys that its mask says", "[ops]") {
  for (bool causal : {true, false}) {
    for (int64_t window : {0, 1, 4, 70}) {
      for (bool documents : {false, true}) {
        INFO("causal " << causal << ", window " << window << ", documents " << documents);
        const int64_t queries = 75, keys = 90;
        MaskValues m{causal, window, {15, 4}, {90, 61}, {}};
        if (documents) {
          for (int64_t i = 0; i < kBatch * queries; ++i) {
            m.start.push_back(static_cast<int32_t>(i % queries / 20 * 20));
          }
        }
        check_mask(m, queries, keys);
      }
    }
  }
}

TEST_CASE("attention of queries before the first key sees nothing", "[ops]") {
  check_mask({true, 0, {-3, -80}, {5, 5}, {}}, 6, 5);
}

TEST_CASE("a query that sees no key has output and gradient 0 and gives nothing", "[ops]") {
  for (AttentionKind kind : kKinds) {
    BlockedRow example;
    const auto results = example.run(kind);
    CHECK(results[0][1] == 0.0f);
    CHECK(results[1][1] == 0.0f);
    for (const std::vector<float>& x : results) {
      for (float value : x) CHECK(std::isfinite(value));
    }
    float dv_sum = 0.0f;
    for (float value : results[3]) dv_sum += value;
    CHECK(std::abs(dv_sum - 3.0f) <= tolerance(Dtype::f32, 4) * 3.0f);  // one a row that sees

    example.q[1] = 40.0f;
    example.dy[1] = -7.0f;
    CHECK(example.run(kind) == results);
  }
  const auto composed = BlockedRow().run(AttentionKind::composed);
  const auto flash = BlockedRow().run(AttentionKind::flash);
  for (size_t i = 0; i < composed.size(); ++i) {
    const std::vector<double> a(flash[i].begin(), flash[i].end());
    const std::vector<double> b(composed[i].begin(), composed[i].end());
    CHECK(relative_difference(a, b) <= twin_tolerance(Dtype::f32));
  }
}

TEST_CASE("attention with key length 0 gives 0", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor x = from_host(ctx, std::vector<float>{1, 2, 3, 4}, {1, 2, 1, 2});
  AttentionOptions options;
  options.mask = causal_mask(ctx, 1, 2, 2);
  options.mask.key_length = from_host(ctx, std::vector<int32_t>{0}, {1});
  const std::vector<float> nothing(4, 0.0f);
  for (AttentionKind kind : kKinds) {
    Tape tape(ctx);
    const Var q = tape.leaf(x), k = tape.leaf(x), v = tape.leaf(x);
    const Var o = attention(ctx, q, k, v, options, kind);
    tape.backward(std::span(&o, 1), std::span(&x, 1));
    CHECK(to_host<float>(ctx, o.value) == nothing);
    for (const Var& input : {q, k, v}) CHECK(to_host<float>(ctx, tape.grad(input)) == nothing);
  }
}

TEST_CASE("flash attention never reads behind the key length", "[ops]") {
  const Context ctx = cpu_context(1);
  const int64_t keys = 70, filled = 37;
  const auto cache = [&](uint64_t site, double rest) {
    Tensor x = from_host(ctx, values_of(site, keys), {1, keys, 1, 1});
    fill(ctx, x.slice(1, filled, keys - filled), rest);
    return x;
  };
  AttentionOptions options;
  options.mask = causal_mask(ctx, 1, 20, keys);
  options.mask.position_base = from_host(ctx, std::vector<int32_t>{filled - 20}, {1});
  options.mask.key_length = from_host(ctx, std::vector<int32_t>{filled}, {1});
  const auto run = [&](double rest) {
    Tape tape(ctx);
    const Tensor queries = from_host(ctx, values_of(5, 20), {1, 20, 1, 1});
    const Var q = tape.leaf(queries), k = tape.leaf(cache(6, rest)), v = tape.leaf(cache(7, rest));
    const Var o = attention_flash(ctx, q, k, v, options);
    tape.backward(std::span(&o, 1), std::span(&queries, 1));
    std::vector<double> values;
    for (const Tensor& x : {o.value, tape.grad(q), tape.grad(k), tape.grad(v)}) {
      const std::vector<double> part = to_host<double>(ctx, x);
      values.insert(values.end(), part.begin(), part.end());
    }
    return values;
  };
  CHECK(run(std::nan("")) == run(0.0));
}
