// Every kernel a few times and nothing else: what compute-sanitizer can watch in little time.

#include "ops/op_case.h"
#include "support/catch.h"
#include "support/gpu.h"
#include "support/op_tests.h"

using namespace xtrain;

TEST_CASE("transposed inputs of every op on the GPU give the bits of contiguous ones", "[cuda]") {
  Context ctx = test_cuda_context();
  ctx.gemm = GemmBackend::tiled;  // a library may sum in another order for another layout
  for (const std::string& family : op_families()) {
    DYNAMIC_SECTION(family) {
      for (const OpCase& c : op_cases(family)) {
        ctx.training = c.dropout;
        for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
          INFO(c.op << ", " << c.variant << " in " << dtype);
          OpRun run{.dtype = dtype, .rounded = dtype};
          const OpValues expected = run_case(ctx, c, run);
          run.inputs = OpRun::Layout::transposed;
          const OpValues transposed = run_case(ctx, c, run);
          REQUIRE(transposed.names == expected.names);
          for (size_t i = 0; i < expected.names.size(); ++i) {
            INFO(expected.names[i]);
            CHECK(relative_difference(transposed.values[i], expected.values[i]) == 0.0);
          }
        }
      }
    }
  }
}
