#include "support/gpu.h"

#include <cstdlib>
#include <string>

namespace xtrain {

const Context& test_cuda_context() {
  static const Context ctx = [] {
    const char* given = std::getenv("XT_TEST_CUDA");
    const std::string wanted = given ? given : "";
    CudaOptions options;
    options.pool = wanted.find("one_allocation_each") == std::string::npos;
    options.wait_after_launch = wanted.find("wait") != std::string::npos;
    return cuda_context(0, options);
  }();
  return ctx;
}

}  // namespace xtrain
