#include "ops/view/view.h"

#include "support/catch.h"
#include "support/op_tests.h"

using namespace xtrain;

TEST_CASE("view cases", "[ops]") {
  check_op_cases("view");
}
