#include "core/check_indices_kernels.h"

namespace xtrain {

void check_index_range(const Cpu&, const IndexRule& rule, int64_t n, const int32_t* ids) {
  for (int64_t i = 0; i < n; ++i) {
    if (!rule.allows(ids[i])) fail_index(rule, i, ids[i]);
  }
}

}  // namespace xtrain
