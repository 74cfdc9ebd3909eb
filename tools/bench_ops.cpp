// Measures the ops whose time is that of moving their tensors, forward and backward, as a share of
// the rate at which the device copies.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "core/copy.h"
#include "core/error.h"
#include "ops/activation/activation.h"
#include "ops/add_relu/add_relu.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/embedding/embedding.h"
#include "ops/norm/norm.h"
#include "ops/qk_norm_rope/qk_norm_rope.h"
#include "ops/softmax/softmax.h"
#include "ops/swiglu/swiglu.h"
#include "tools/device.h"
#include "tools/measure.h"
#include "tools/program.h"
#include "train/adamw/adamw.h"

namespace xtrain {
namespace {

struct Input {
  Shape shape;
  bool is_parameter = false;  // its gradient is kept in f32
};

struct OpBench {
  std::string family, name;
  std::vector<Input> inputs;
  std::function<std::vector<Var>(const Context& ctx, std::span<const Var> inputs)> call;
  double forward_moved, backward_moved;  // bytes that must be read or written, each once
};

struct Result {
  std::string family, name, pass;
  double seconds, bytes;

  double rate() const { return bytes / seconds; }
};

// --- the ops -------------------------------------------------------------------------------------

Tensor random_ids(const Context& ctx, int64_t count, int64_t bound) {
  const RandomStream stream = random_stream(7, 0, 0);
  std::vector<int32_t> ids(count);
  for (int64_t i = 0; i < count; ++i) {
    ids[i] = static_cast<int32_t>(random_below(stream, 0, i, bound));
  }
  return from_host(ctx, ids, {count});
}

std::vector<OpBench> norm_benches(int64_t rows, int64_t columns, double matrix) {
  const Input x{{rows, columns}}, vector{{columns}, true};
  const auto add_norm_of = [](NormKind kind) {
    return [kind](const Context& ctx, std::span<const Var> in) {
      const Var bias = kind == NormKind::layer ? in[3] : Var();
      const AddNorm result = add_norm(ctx, in[0], in[1], in[2], bias, kind, 1e-6);
      return std::vector<Var>{result.sum, result.normed};
    };
  };
  return {
      {"norm",
       "rms_norm",
       {x, vector},
       [](const Context& ctx, std::span<const Var> in) {
         return std::vector<Var>{rms_norm(ctx, in[0], in[1], 1e-6)};
       },
       2 * matrix,
       3 * matrix},
      {"norm",
       "layer_norm",
       {x, vector, vector},
       [](const Context& ctx, std::span<const Var> in) {
         return std::vector<Var>{layer_norm(ctx, in[0], in[1], in[2], 1e-6)};
       },
       2 * matrix,
       3 * matrix},
      {"norm", "add_rms_norm", {x, x, vector}, add_norm_of(NormKind::rms), 4 * matrix, 4 * matrix},
      {"norm",
       "add_layer_norm",
       {x, x, vector, vector},
       add_norm_of(NormKind::layer),
       4 * matrix,
       4 * matrix}};
}

std::vector<OpBench> elementwise_benches(int64_t rows, int64_t columns, double matrix) {
  const Input x{{rows, columns}};
  const auto unary = [](Var (*op)(const Context&, const Var&)) {
    return [op](const Context& ctx, std::span<const Var> in) {
      return std::vector<Var>{op(ctx, in[0])};
    };
  };
  return {{"activation", "gelu", {x}, unary(gelu), 2 * matrix, 3 * matrix},
          {"activation", "gelu_tanh", {x}, unary(gelu_tanh), 2 * matrix, 3 * matrix},
          {"swiglu", "swiglu", {{{rows, 2 * columns}}}, unary(swiglu), 3 * matrix, 5 * matrix},
          {"softmax", "softmax", {x}, unary(softmax), 2 * matrix, 3 * matrix}};
}

// Fused, and as two kernels: the sum is then written and read again.
std::vector<OpBench> add_relu_benches(int64_t rows, int64_t columns, double matrix) {
  const Input x{{rows, columns}};
  const auto binary = [](Var (*op)(const Context&, const Var&, const Var&)) {
    return [op](const Context& ctx, std::span<const Var> in) {
      return std::vector<Var>{op(ctx, in[0], in[1])};
    };
  };
  return {{"add_relu", "add_relu", {x, x}, binary(add_relu), 3 * matrix, 3 * matrix},
          {"add_relu", "add, relu", {x, x}, binary(add_relu_composed), 5 * matrix, 3 * matrix}};
}

std::vector<OpBench> token_benches(const Context& home, int64_t rows, int64_t columns, Dtype dtype,
                                   double matrix) {
  constexpr int64_t kVocab = 8192;
  const Tensor targets = random_ids(home, rows, columns), ids = random_ids(home, rows, kVocab);
  const double table_gradient =
      static_cast<double>(kVocab * columns * size_of(accumulator_dtype(dtype)));
  return {{"cross_entropy",
           "cross_entropy",
           {{{rows, columns}}},
           [targets](const Context& ctx, std::span<const Var> in) {
             return std::vector<Var>{cross_entropy(ctx, in[0], targets).sum};
           },
           matrix,
           2 * matrix},
          {"embedding",
           "embedding",
           {{{kVocab, columns}, true}},
           [ids](const Context& ctx, std::span<const Var> in) {
             return std::vector<Var>{embedding(ctx, in[0], ids)};
           },
           2 * matrix,
           matrix + table_gradient}};
}

// `rows` tokens in sequences of `length`, `columns` elements each for the heads of queries, keys
// and values, 2 : 1 : 1, of which the op takes the first two kinds.
std::vector<OpBench> rope_benches(const Context& home, int64_t rows, int64_t columns, Dtype dtype,
                                  double matrix) {
  constexpr int64_t kHead = 64;
  const int64_t kv_heads = columns / (4 * kHead), batch = rows % 1024 == 0 ? rows / 1024 : 1;
  const int64_t length = rows / batch;
  const QkNormRope options{2 * kv_heads, kv_heads, kHead};
  if (kv_heads * 4 * kHead != columns) return {};
  std::vector<int32_t> positions(rows);
  for (int64_t i = 0; i < rows; ++i) positions[i] = static_cast<int32_t>(i % length);
  const Tensor at = from_host(home, positions, {batch, length});
  const RopeTable table = rope_table(home, length, kHead, 1e6, dtype);
  const Input weight{{kHead}, true};
  return {{"qk_norm_rope",
           "qk_norm_rope",
           {{{batch, length, options.width()}}, weight, weight},
           [=](const Context& ctx, std::span<const Var> in) {
             return std::vector<Var>{qk_norm_rope(ctx, in[0], in[1], in[2], options, &table, at)};
           },
           1.5 * matrix,
           2.25 * matrix}};
}

std::vector<OpBench> op_benches(const Context& ctx, int64_t rows, int64_t columns, Dtype dtype) {
  const double matrix = static_cast<double>(rows * columns * size_of(dtype));  // bytes
  std::vector<OpBench> all = norm_benches(rows, columns, matrix);
  for (const auto& more :
       {elementwise_benches(rows, columns, matrix), add_relu_benches(rows, columns, matrix),
        token_benches(ctx, rows, columns, dtype, matrix),
        rope_benches(ctx, rows, columns, dtype, matrix)}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

// --- measuring -----------------------------------------------------------------------------------

std::vector<Tensor> input_tensors(const Context& ctx, const OpBench& bench, Dtype dtype) {
  std::vector<Tensor> tensors;
  for (const Input& input : bench.inputs) {
    tensors.push_back(normal_tensor(ctx, input.shape, dtype, tensors.size()));
  }
  return tensors;
}

double forward_seconds(const Context& ctx, const OpBench& bench, std::span<const Tensor> inputs) {
  const std::vector<Var> values(inputs.begin(), inputs.end());
  return seconds_per_call(ctx, [&] { bench.call(ctx, values); });
}

// One recorded call of an op, ready to be walked backwards.
struct Recorded {
  Tape tape;
  std::vector<Var> outputs;

  Recorded(const Context& ctx, const OpBench& bench, std::span<const Tensor> inputs) : tape(ctx) {
    std::vector<Var> leaves;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Dtype dtype = inputs[i].dtype();
      leaves.push_back(
          tape.leaf(inputs[i], bench.inputs[i].is_parameter ? accumulator_dtype(dtype) : dtype));
    }
    outputs = bench.call(ctx, leaves);
  }
};

double backward_seconds(const Context& ctx, const OpBench& bench, std::span<const Tensor> inputs) {
  std::vector<Tensor> upstream;
  for (const Var& y : Recorded(ctx, bench, inputs).outputs) {
    upstream.push_back(normal_tensor(ctx, y.shape(), y.dtype(), 100 + upstream.size()));
  }
  std::vector<std::unique_ptr<Recorded>> ready(kTimedCalls);
  TimedCall timed;
  timed.prepare = [&](int call) { ready[call] = std::make_unique<Recorded>(ctx, bench, inputs); };
  timed.run = [&](int call) {
    ready[call]->tape.backward(ready[call]->outputs, upstream);
    ready[call].reset();
  };
  return seconds_per_call(ctx, timed);
}

Result copy_result(const Context& ctx, int64_t rows, int64_t columns, Dtype dtype) {
  const TimedCopy copied = time_copy(ctx, {rows, columns}, dtype);
  return {"copy", "copy", "", copied.seconds, copied.bytes};
}

// Gradient, master and both moments are read; all but the gradient and, beside a master, the value
// are written.
Result adamw_result(const Context& ctx, int64_t rows, int64_t columns, Dtype dtype) {
  ParameterSet parameters;
  parameters.add("weight", {rows, columns}, ParameterKind::matrix, 0.0, 1.0);
  parameters.allocate(ctx, dtype);
  fill(ctx, parameters.values(), 0.5);
  fill(ctx, parameters.grads(), 0.25);
  parameters.list()[0].has_grad = true;
  AdamW optimizer(ctx, parameters, AdamWOptions{}, {ArenaRange{0, parameters.arena_size()}});
  const auto numbers = optimizer.step_scalars(1, 1e-3);
  const Tensor scalars = from_host(ctx, std::span<const double>(numbers), {3});
  const Tensor scale = from_host(ctx, std::vector<double>{1.0, 1.0, 1.0, 1.0}, {4});
  const int64_t wide = size_of(accumulator_dtype(dtype));
  const int64_t bytes = 7 * wide + (dtype == Dtype::bf16 ? size_of(dtype) : 0);  // an element
  return {"adamw", "adamw", "step",
          seconds_per_call(ctx, [&] { optimizer.step(ctx, scalars, scale); }),
          static_cast<double>(rows * columns * bytes)};
}

// --- reporting -----------------------------------------------------------------------------------

nlohmann::ordered_json as_json(const Result& r, const Result& copied) {
  return {{"family", r.family},
          {"op", r.name},
          {"pass", r.pass},
          {"us", r.seconds * 1e6},
          {"bytes", r.bytes},
          {"gb_per_s", r.rate() / 1e9},
          {"share", r.rate() / copied.rate()}};
}

void print_row(const Result& r, const Result& copied) {
  std::printf("%-16s %-9s %10.1f us %9.1f MB %8.0f GB/s %5.1f %%\n", r.name.c_str(), r.pass.c_str(),
              r.seconds * 1e6, r.bytes / 1e6, r.rate() / 1e9, 100 * r.rate() / copied.rate());
  std::fflush(stdout);
}

struct Options {
  std::string device = "auto", dtype = "bf16";
  int64_t rows = 32768, columns = 4096;
  bool json = false;
  std::vector<std::string> families;
};

bool parse_options(Options& o, int argc, char** argv) {
  CLI::App app(
      "Times memory-bound ops: microseconds, the bytes that must move, and that rate as a share of "
      "the rate of a copy.",
      "bench_ops");
  app.option_defaults()->always_capture_default();
  add_device_option(app, o.device);
  app.add_option("--dtype", o.dtype, "f64, f32 or bf16");
  app.add_option("--rows", o.rows)->check(CLI::PositiveNumber);
  app.add_option("--columns", o.columns)->check(CLI::PositiveNumber);
  app.add_flag("--json", o.json, "print one JSON object instead of a table");
  app.add_option("families", o.families, "folders of ops/, and adamw; all by default");
  return parse_arguments(app, argc, argv);
}

// The benches of the families that the options name.
std::vector<OpBench> chosen_benches(const Context& ctx, const Options& o) {
  const std::set<std::string> wanted(o.families.begin(), o.families.end());
  std::set<std::string> known{"adamw"};
  std::vector<OpBench> chosen;
  for (OpBench& bench : op_benches(ctx, o.rows, o.columns, dtype_from_name(o.dtype))) {
    known.insert(bench.family);
    if (wanted.empty() || wanted.contains(bench.family)) chosen.push_back(std::move(bench));
  }
  for (const std::string& family : wanted) {
    check_input(known.contains(family), "bench_ops has no ops of the family ", family);
  }
  return chosen;
}

std::vector<Result> measure(const Context& ctx, const Options& o,
                            const std::vector<OpBench>& benches, const Result& copied) {
  const Dtype dtype = dtype_from_name(o.dtype);
  std::vector<Result> results;
  const auto add = [&](const Result& result) {
    results.push_back(result);
    if (!o.json) print_row(result, copied);
  };
  for (const OpBench& bench : benches) {
    const std::vector<Tensor> inputs = input_tensors(ctx, bench, dtype);
    add({bench.family, bench.name, "forward", forward_seconds(ctx, bench, inputs),
         bench.forward_moved});
    add({bench.family, bench.name, "backward", backward_seconds(ctx, bench, inputs),
         bench.backward_moved});
  }
  const auto& names = o.families;
  if (names.empty() || std::find(names.begin(), names.end(), "adamw") != names.end()) {
    add(adamw_result(ctx, o.rows, o.columns, dtype));
  }
  return results;
}

void print_json(const Context& ctx, const Options& o, const std::vector<Result>& results,
                const Result& copied) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Result& result : results) rows.push_back(as_json(result, copied));
  const nlohmann::ordered_json all{{"device", text(ctx.device)},
                                   {"dtype", o.dtype},
                                   {"rows", o.rows},
                                   {"columns", o.columns},
                                   {"copy_gb_per_s", copied.rate() / 1e9},
                                   {"ops", rows}};
  std::cout << all.dump(1) << "\n";
}

int bench_ops(int argc, char** argv) {
  Options o;
  if (!parse_options(o, argc, argv)) return 0;
  const Context ctx = context_on(o.device);
  const std::vector<OpBench> benches = chosen_benches(ctx, o);
  const Result copied = copy_result(ctx, o.rows, o.columns, dtype_from_name(o.dtype));
  if (!o.json) print_row(copied, copied);
  const std::vector<Result> results = measure(ctx, o, benches, copied);
  if (o.json) print_json(ctx, o, results, copied);
  return 0;
}

}  // namespace
}  // namespace xtrain

int main(int argc, char** argv) {
  return xtrain::run_program("bench_ops", [&] { return xtrain::bench_ops(argc, argv); });
}
