// Computes logits, loss and every gradient of a model case, or the logits of a model's folder, for
// comparison with another implementation.

#include <CLI/CLI.hpp>
#include <string>

#include "tools/device.h"
#include "tools/model_case.h"
#include "tools/program.h"
#include "train/checkpoint.h"

namespace xtrain {
namespace {

void write(const std::string& path, const std::vector<NamedValues>& results) {
  std::vector<SafetensorsInfo> infos;
  for (const NamedValues& r : results) infos.push_back({r.name, "F64", r.shape});
  SafetensorsWriter writer(path, std::move(infos));
  for (const NamedValues& r : results) writer.write(r.name, std::as_bytes(std::span(r.values)));
  writer.finish();
}

int model_values(int argc, char** argv) {
  CLI::App app("Computes logits, loss and gradients of a model case, or a model's logits.",
               "model_values");
  std::string input, inputs, output, device = "auto", dtype = "f32", gemm;
  int threads = 0;
  bool flash = false;
  app.add_option("case", input,
                 "safetensors file of config, weights and batch, or a model's folder")
      ->required();
  app.add_option("--inputs", inputs, "for a folder: safetensors file with \"inputs\" [B, T] I32");
  app.add_option("--output", output, "safetensors file of the results")->required();
  add_device_option(app, device);
  app.add_option("--dtype", dtype, "f64, f32 or bf16")->capture_default_str();
  app.add_option("--gemm", gemm, "backend of matrix products; the device's default when not given");
  app.add_option("--threads", threads, "of the CPU; 0: one a core")->check(CLI::Range(0, 1024));
  app.add_flag("--flash", flash, "flash attention instead of composed");
  if (!parse_arguments(app, argc, argv)) return 0;

  Context ctx = context_on(device, threads);
  if (!gemm.empty()) ctx.gemm = gemm_backend_from_name(gemm);
  Exec exec;
  exec.dtype = dtype_from_name(dtype);
  exec.attention = flash ? AttentionKind::flash : AttentionKind::composed;
  if (inputs.empty()) {
    write(output, compute(ctx, ModelCase(input), exec));
  } else {
    write(output,
          {compute_logits(ctx, ModelFolder(model_path(input)), SafetensorsFile(inputs), exec)});
  }
  return 0;
}

}  // namespace
}  // namespace xtrain

int main(int argc, char** argv) {
  return xtrain::run_program("model_values", [&] { return xtrain::model_values(argc, argv); });
}
