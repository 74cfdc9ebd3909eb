// Proves every op's gradients by finite differences and prints a table.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "core/error.h"
#include "ops/op_case.h"
#include "tools/device.h"
#include "tools/program.h"

namespace xtrain {
namespace {

// One row an input. Returns the number of failures.
int check_case(const Context& ctx, const OpCase& c, double tolerance) {
  int failures = 0;
  const std::vector<GradCheckInput> results = grad_check(ctx, c);
  for (size_t i = 0; i < results.size(); ++i) {
    if (c.inputs[i].is_integer()) continue;
    const bool ok = results[i].relative_error <= tolerance;
    failures += ok ? 0 : 1;
    std::printf("%-22s %-34s %-10s %10.2e  %s\n", c.op.c_str(), c.variant.c_str(),
                c.inputs[i].name.c_str(), results[i].relative_error, ok ? "ok" : "FAIL");
  }
  return failures;
}

int gradcheck(int argc, char** argv) {
  CLI::App app("Checks every op's gradients against central differences in f64.", "gradcheck");
  std::vector<std::string> families;
  double tolerance = 1e-6;
  std::string device = "cpu";
  add_device_option(app, device);
  app.add_option("--tolerance", tolerance, "largest relative error that passes")
      ->capture_default_str();
  app.add_option("families", families, "op families to check; all by default");
  if (!parse_arguments(app, argc, argv)) return 0;
  const std::vector<std::string> known = op_families();
  for (const std::string& family : families) {
    check_input(std::find(known.begin(), known.end(), family) != known.end(),
                "no op family is called ", family, "; they are the folders of ops/");
  }
  if (families.empty()) families = known;
  const Context ctx = context_on(device, 1);
  std::printf("%-22s %-34s %-10s %10s  %s\n", "op", "case", "input", "error", "verdict");
  int failures = 0;
  for (const std::string& family : families) {
    for (const OpCase& c : op_cases(family)) failures += check_case(ctx, c, tolerance);
  }
  std::printf(failures == 0 ? "all gradients agree within %.0e\n" : "gradients beyond %.0e\n",
              tolerance);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace xtrain

int main(int argc, char** argv) {
  return xtrain::run_program("gradcheck", [&] { return xtrain::gradcheck(argc, argv); });
}
