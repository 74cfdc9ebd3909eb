#include "ops/op_case.h"
#include "support/catch.h"
#include "support/op_tests.h"

using namespace xtrain;

TEST_CASE("every case of every op on the GPU equals the oracle", "[cuda]") {
  for (const std::string& family : op_families()) {
    DYNAMIC_SECTION(family) {
      check_op_values_on_gpu(family);
    }
  }
}

TEST_CASE("every case of every op on the GPU is consistent with itself", "[cuda]") {
  for (const std::string& family : op_families()) {
    DYNAMIC_SECTION(family) {
      check_op_consistency_on_gpu(family);
    }
  }
}
