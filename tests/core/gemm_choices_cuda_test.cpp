#include <filesystem>

#include "core/atomic_file.h"
#include "core/error.h"
#include "core/gemm_checks.h"
#include "core/mapped_file.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace xtrain;

namespace {

Context context_with_choices(const std::string& path, bool measures) {
  CudaOptions options;
  options.gemm_choices = path;
  options.measures_gemm = measures;
  return cuda_context(0, options);
}

std::vector<double> product_on(const Context& ctx) {
  const Tensor a = random_tensor(ctx, {512, 256}, Dtype::bf16, 1);
  const Tensor b = random_tensor(ctx, {256, 384}, Dtype::bf16, 2);
  const Tensor c = random_tensor(ctx, {512, 384}, Dtype::f32, 3);
  check_product(ctx, a, b, c, 1.0, 1.0);
  const Tensor bias = random_tensor(ctx, {384}, Dtype::bf16, 4);
  const Tensor y = empty(ctx, {512, 384}, Dtype::bf16);
  gemm_bias(ctx, a, b, bias, y);
  std::vector<double> values = doubles(ctx, c);
  const std::vector<double> more = doubles(ctx, y);
  values.insert(values.end(), more.begin(), more.end());
  return values;
}

std::string text_of(const std::string& path) {
  return std::string(MappedFile(path).text());
}

}  // namespace

TEST_CASE("GPU products that were measured take the same algorithm ever after", "[cuda]") {
  const TemporaryFolder folder;
  const std::string path = (folder.path / "choices.json").string();
  CHECK_THROWS_WITH(context_with_choices(path, false),
                    path + ": there is no such file of gemm choices; let `train` make it");
  const std::vector<double> measured = product_on(context_with_choices(path, true));
  const std::string file = text_of(path);
  CHECK(file.find("384x512x256 of 1") != std::string::npos);
  CHECK(file.find("bias@") != std::string::npos);
  for (bool measures : {true, false}) {
    CHECK(product_on(context_with_choices(path, measures)) == measured);
    CHECK(text_of(path) == file);
  }
}

TEST_CASE("gemm choices of another machine, and files that are none, are refused", "[cuda]") {
  const TemporaryFolder folder;
  const std::string path = (folder.path / "choices.json").string();
  write_file(path, R"({"machine": "abacus", "products": {}})");
  const std::string expected =
      path + ": gemm choices must be made on the machine that they are for";
  try {
    context_with_choices(path, true);
    FAIL("another machine's choices were taken");
  } catch (const InputError& error) {
    CHECK(std::string(error.what()).starts_with(expected));
    CHECK(std::string(error.what()).find("these are for abacus") != std::string::npos);
  }
  for (const char* text : {"", "[]", R"({"machine": 3})", R"({"machine": "abacus"})",
                           R"({"machine": "abacus", "products": {"x": {"algorithm": [1]}}})"}) {
    INFO(text);
    write_file(path, text);
    CHECK_THROWS_WITH(context_with_choices(path, true),
                      path + ": must be a file of gemm choices, as `train` writes it; remove it");
  }
}
