#include "ops/column_sums_checks.h"
#include "ops/rebuilt_checks.h"
#include "support/gpu.h"

using namespace xtrain;

TEST_CASE("on the GPU an activation made again has the bits of the one that was projected",
          "[cuda]") {
  check_activation_linear_bits(test_cuda_context());
}

TEST_CASE("on the GPU a norm made again has the bits of the one that was projected", "[cuda]") {
  check_norm_linear_bits(test_cuda_context());
}

TEST_CASE("on the GPU gradients are summed over their rows where a bias asks for it", "[cuda]") {
  check_column_sums(test_cuda_context());
}
