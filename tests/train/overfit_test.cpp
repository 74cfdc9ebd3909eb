#include "support/catch.h"
#include "train/learn_by_heart.h"

using namespace xtrain;

TEST_CASE("every model kind learns one batch by heart and writes it down again", "[train]") {
  check_every_kind_learns_by_heart(cpu_context(1));
}
