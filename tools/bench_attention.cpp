// Measures attention, forward and backward, over the length of the sequences: flash attention, the
// kernels that it would take on a GPU without wgmma, and composed attention. By default 16384
// tokens, 2048 elements a token in heads of 64 and 128, with a causal mask and without.

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/copy.h"
#include "core/error.h"
#include "ops/attention/attention.h"
#include "ops/attention/flash_cuda_kernels.h"
#include "tools/device.h"
#include "tools/measure.h"
#include "tools/program.h"

namespace xtrain {
namespace {

struct Problem {
  int64_t batch, length, heads, kv_heads, head_dim;
  bool causal;

  // Products of what is visible; backward has five where forward has two.
  double forward_operations() const {
    const double pairs = static_cast<double>(length * length) * (causal ? 0.5 : 1.0);
    return 4.0 * static_cast<double>(batch * heads * head_dim) * pairs;
  }
  double backward_operations() const { return 2.5 * forward_operations(); }
};

struct Operands {
  Tensor q, k, v, dy;  // [B, T, H, D]
  AttentionOptions options;

  Operands(const Context& ctx, const Problem& p, Dtype dtype) {
    const Shape shape{p.batch, p.length, p.heads, p.head_dim};
    const Shape key_shape{p.batch, p.length, p.kv_heads, p.head_dim};
    q = normal_tensor(ctx, shape, dtype, 0);
    k = normal_tensor(ctx, key_shape, dtype, 1);
    v = normal_tensor(ctx, key_shape, dtype, 2);
    dy = normal_tensor(ctx, shape, dtype, 3);
    options.mask = causal_mask(ctx, p.batch, p.length, p.length);
    options.mask.causal = p.causal;
  }
};

// One recorded forward pass, whose gradients are kept in the dtype of the inputs, as between ops.
struct Recorded {
  Tape tape;
  Var q, k, v, y;

  Recorded(const Context& ctx, const Operands& o, AttentionKind kind) : tape(ctx) {
    const Dtype dtype = o.q.dtype();
    q = tape.leaf(o.q, dtype);
    k = tape.leaf(o.k, dtype);
    v = tape.leaf(o.v, dtype);
    y = attention(ctx, q, k, v, o.options, kind);
  }
  void backward(const Tensor& dy) { tape.backward(std::span(&y, 1), std::span(&dy, 1)); }
};

struct Seconds {
  double forward, backward;
};

Seconds seconds_of(const Context& ctx, const Operands& o, AttentionKind kind) {
  const double forward =
      seconds_per_call(ctx, [&] { attention(ctx, o.q, o.k, o.v, o.options, kind); });
  std::vector<std::unique_ptr<Recorded>> ready(kTimedCalls);
  TimedCall timed;
  timed.prepare = [&](int call) { ready[call] = std::make_unique<Recorded>(ctx, o, kind); };
  timed.run = [&](int call) {
    ready[call]->backward(o.dy);
    ready[call].reset();
  };
  return Seconds{forward, seconds_per_call(ctx, timed)};
}

FlashForward<BFloat16> flash_call(const Operands& o, Tensor& y, Tensor& log_sum) {
  const auto strides = [](const Tensor& x) {
    return HeadStrides{x.stride(0), x.stride(1), x.stride(2)};
  };
  const int64_t batch = o.q.size(0), length = o.q.size(1), dim = o.q.size(3);
  const FlashProblem problem{{batch, length, length, o.q.size(2), o.k.size(2), dim},
                             1.0 / std::sqrt(static_cast<double>(dim)),
                             VisibleKeys(o.options.mask, length, length),
                             false,
                             {},
                             strides(o.q),
                             strides(o.k),
                             strides(o.v)};
  return FlashForward<BFloat16>{problem,
                                o.q.data<BFloat16>(),
                                o.k.data<BFloat16>(),
                                o.v.data<BFloat16>(),
                                y.mutable_data<BFloat16>(),
                                log_sum.mutable_data<float>()};
}

FlashGradient gradient_into(Tensor& x) {
  return FlashGradient{
      x.mutable_data<BFloat16>(), false, false, x.stride(0), x.stride(1), x.stride(2), x.stride(3)};
}

// What attention_flash would take on a GPU that has mma.sync and no better; nothing where that is
// not to be had.
std::optional<Seconds> portable_seconds(const Context& ctx, const Operands& o) {
  if constexpr (kCudaBuilt) {
    if (ctx.device.type != DeviceType::cuda || o.q.dtype() != Dtype::bf16) return {};
    const auto like = [&](const Tensor& x) { return empty(ctx, x.shape(), Dtype::bf16); };
    Tensor y = like(o.q), dq = like(o.q), dk = like(o.k), dv = like(o.v);
    Tensor log_sum = empty(ctx, {o.q.size(0), o.q.size(2), o.q.size(1)}, Dtype::f32);
    const FlashForward<BFloat16> forward = flash_call(o, y, log_sum);
    const FlashBackward<BFloat16> backward{forward.problem,
                                           forward.q,
                                           forward.k,
                                           forward.v,
                                           forward.o,
                                           forward.log_sum,
                                           o.dy.data<BFloat16>(),
                                           gradient_into(dq),
                                           gradient_into(dk),
                                           gradient_into(dv)};
    const Cuda cuda{ctx};
    if (!mma_supports(cuda, forward) || !mma_supports(cuda, backward)) return {};
    return Seconds{seconds_per_call(ctx, [&] { mma_forward(cuda, forward); }),
                   seconds_per_call(ctx, [&] { mma_backward(cuda, backward); })};
  }
  return {};
}

std::vector<std::byte> bytes_of(const Context& ctx, const Tensor& x) {
  std::vector<std::byte> bytes(x.nbytes());
  copy_to_host(ctx, contiguous(ctx, x), bytes);
  return bytes;
}

// Whether output and gradients have the same bits in every one of `runs` runs.
bool same_bits(const Context& ctx, const Operands& o, int runs) {
  std::vector<std::byte> first[4];
  for (int run = 0; run < runs; ++run) {
    Recorded recorded(ctx, o, AttentionKind::flash);
    recorded.backward(o.dy);
    const Tensor results[] = {recorded.y.value, recorded.tape.grad(recorded.q),
                              recorded.tape.grad(recorded.k), recorded.tape.grad(recorded.v)};
    for (int i = 0; i < 4; ++i) {
      std::vector<std::byte> bytes = bytes_of(ctx, results[i]);
      if (run == 0)
        first[i] = std::move(bytes);
      else if (bytes != first[i])
        return false;
    }
  }
  return true;
}

struct Options {
  std::string device = "auto", dtype = "bf16";
  std::vector<int64_t> lengths{512, 1024, 2048, 4096, 8192, 16384}, head_dims{64, 128};
  std::vector<std::string> masks{"causal", "full"};
  int64_t tokens = 16384, width = 2048, group = 1, composed_up_to = 1024;
  int runs = 20;
  bool json = false;
};

bool parse_options(Options& o, int argc, char** argv) {
  CLI::App app("Times attention, in TFLOP/s of what is visible.", "bench_attention");
  app.option_defaults()->always_capture_default();
  add_device_option(app, o.device);
  app.add_option("--dtype", o.dtype, "f64, f32 or bf16");
  app.add_option("--lengths", o.lengths, "of the sequences")->check(CLI::PositiveNumber);
  app.add_option("--head-dims", o.head_dims)->check(CLI::PositiveNumber);
  app.add_option("--masks", o.masks)->check(CLI::IsMember({"causal", "full"}));
  app.add_option("--tokens", o.tokens, "in all sequences together")->check(CLI::PositiveNumber);
  app.add_option("--width", o.width, "heads times head size")->check(CLI::PositiveNumber);
  app.add_option("--group", o.group,
                 "query heads that share a key head, which must divide the heads")
      ->check(CLI::PositiveNumber);
  app.add_option("--composed-up-to", o.composed_up_to,
                 "the longest sequences for composed attention, whose memory is quadratic");
  app.add_option("--runs", o.runs, "of one sequence, which must give the same bits; 0: no check");
  app.add_flag("--json", o.json, "print one JSON object instead of a table");
  return parse_arguments(app, argc, argv);
}

// TFLOP/s.
struct Rates {
  double forward, backward;
};

struct Row {
  Problem problem;
  Rates flash;
  std::optional<Rates> portable, composed;
};

Row measure(const Context& ctx, const Options& o, const Problem& p) {
  const Operands operands(ctx, p, dtype_from_name(o.dtype));
  const auto rates = [&](const Seconds& seconds) {
    return Rates{p.forward_operations() / seconds.forward / 1e12,
                 p.backward_operations() / seconds.backward / 1e12};
  };
  Row row{p, rates(seconds_of(ctx, operands, AttentionKind::flash)), {}, {}};
  if (const auto seconds = portable_seconds(ctx, operands)) row.portable = rates(*seconds);
  if (p.length <= o.composed_up_to) {
    row.composed = rates(seconds_of(ctx, operands, AttentionKind::composed));
  }
  return row;
}

std::string mask_name(const Problem& p) {
  return p.causal ? "causal" : "full";
}

void print_heading() {
  std::printf(
      "TFLOP/s              ------- forward -------  ------- backward ------\n"
      "   D      T mask      flash portable composed  flash portable composed\n");
}

void print_row(const Row& row) {
  const auto number = [](const std::optional<Rates>& rates, double Rates::*pass) {
    char digits[32] = "-";
    if (rates) std::snprintf(digits, sizeof digits, "%.2f", *rates.*pass);
    return std::string(digits);
  };
  std::printf("%4ld %6ld %-6s", row.problem.head_dim, row.problem.length,
              mask_name(row.problem).c_str());
  for (const auto pass : {&Rates::forward, &Rates::backward}) {
    std::printf("%9s%9s%9s", number(row.flash, pass).c_str(), number(row.portable, pass).c_str(),
                number(row.composed, pass).c_str());
  }
  std::printf("\n");
  std::fflush(stdout);
}

nlohmann::ordered_json as_json(const std::optional<Rates>& rates) {
  if (!rates) return nullptr;
  return {{"forward", rates->forward}, {"backward", rates->backward}};
}

nlohmann::ordered_json as_json(const Row& row) {
  return {{"head_dim", row.problem.head_dim}, {"length", row.problem.length},
          {"mask", mask_name(row.problem)},   {"batch", row.problem.batch},
          {"heads", row.problem.heads},       {"kv_heads", row.problem.kv_heads},
          {"flash", as_json(row.flash)},      {"portable", as_json(row.portable)},
          {"composed", as_json(row.composed)}};
}

Problem problem_of(const Options& o, int64_t batch, int64_t length, int64_t head_dim, bool causal) {
  const int64_t heads = std::max<int64_t>(1, o.width / head_dim);
  check_input(heads % o.group == 0, "--group must divide the ", heads, " heads of size ", head_dim,
              "; got ", o.group);
  return Problem{batch, length, heads, heads / o.group, head_dim, causal};
}

std::vector<Problem> problems_of(const Options& o) {
  std::vector<Problem> problems;
  for (const int64_t head_dim : o.head_dims) {
    for (const std::string& mask : o.masks) {
      for (const int64_t length : o.lengths) {
        const int64_t batch = std::max<int64_t>(1, o.tokens / length);
        problems.push_back(problem_of(o, batch, length, head_dim, mask == "causal"));
      }
    }
  }
  return problems;
}

int bench_attention(int argc, char** argv) {
  Options o;
  if (!parse_options(o, argc, argv)) return 0;
  const Context ctx = context_on(o.device);
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  const std::vector<Problem> problems = problems_of(o);
  if (!o.json) print_heading();
  for (const Problem& p : problems) {
    const Row row = measure(ctx, o, p);
    if (!o.json) print_row(row);
    rows.push_back(as_json(row));
  }
  bool all_same = true;
  for (const int64_t head_dim : o.head_dims) {
    const Problem one_sequence = problem_of(o, 1, o.lengths[o.lengths.size() / 2], head_dim, true);
    const Operands operands(ctx, one_sequence, dtype_from_name(o.dtype));
    all_same = same_bits(ctx, operands, o.runs) && all_same;
  }
  if (o.json) {
    const nlohmann::ordered_json all{{"device", text(ctx.device)},
                                     {"dtype", o.dtype},
                                     {"tokens", o.tokens},
                                     {"width", o.width},
                                     {"runs", o.runs},
                                     {"same_bits", all_same},
                                     {"rows", rows}};
    std::cout << all.dump(1) << "\n";
  } else {
    std::printf("%d runs gave %s bits\n", o.runs, all_same ? "the same" : "DIFFERENT");
  }
  return all_same ? 0 : 1;
}

}  // namespace
}  // namespace xtrain

int main(int argc, char** argv) {
  return xtrain::run_program("bench_attention",
                             [&] { return xtrain::bench_attention(argc, argv); });
}
