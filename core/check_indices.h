#pragma once
// The one place where indices that came from outside are looked at.

#include <optional>

#include "core/tensor.h"

namespace xtrain {

// Every element of contiguous i32 `ids` must lie in [0, limit) or be `ignored`. `op` and `what`
// name them in the error ("embedding", "ids") and must outlive the context. On the CPU the Error
// comes at once. A GPU's kernel reports, and the Error comes when the host next waits for the
// queue, so kernels that read the ids must not follow an illegal one.
void check_indices(const Context& ctx, const char* op, const char* what, const Tensor& ids,
                   int64_t limit, std::optional<int32_t> ignored = std::nullopt);

}  // namespace xtrain
