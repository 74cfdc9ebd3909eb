#include "tools/device.h"

#include <CLI/CLI.hpp>

#include "core/error.h"
#include "core/parallel.h"

namespace xtrain {

void add_device_option(CLI::App& app, std::string& device) {
  app.add_option("--device", device, "cpu, cuda, or auto: cuda where there is a GPU")
      ->capture_default_str();
}

void add_attention_flags(CLI::App& app, bool& flash) {
  flash = true;
  CLI::Option* yes = app.add_flag_callback(
      "--flash", [&flash] { flash = true; },
      "attention that streams over keys; this is the default");
  app.add_flag_callback(
         "--no-flash", [&flash] { flash = false; }, "attention composed of products and a softmax")
      ->excludes(yes);
}

std::string device_text(Device device) {
  return device.is_cuda() ? text(device, ", ", cuda_device_name(device.index)) : text(device);
}

bool wants_gpu(const std::string& device) {
  check_input(device == "cpu" || device == "cuda" || device == "auto",
              "--device must be cpu, cuda or auto; got ", device);
  check_input(device != "cuda" || cuda_device_count() > 0,
              "--device cuda: this process sees no GPU; use auto or cpu");
  return device != "cpu" && cuda_device_count() > 0;
}

Context context_on(const std::string& device, int threads) {
  if (wants_gpu(device)) return cuda_context(0, {}, threads);
  const Context ctx = cpu_context(threads);
  bind_threads(ctx.threads);
  return ctx;
}

}  // namespace xtrain
