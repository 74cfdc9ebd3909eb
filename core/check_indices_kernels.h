#pragma once
// The kernel of check_indices.h.

#include "core/dispatch.h"

namespace xtrain {

// Which indices are legal, and how the error names them.
struct IndexRule {
  const char* op = nullptr;
  const char* what = nullptr;
  int64_t limit = 0;
  bool has_ignored = false;
  int32_t ignored = 0;

  XT_HOST_DEVICE bool allows(int32_t id) const {
    return (id >= 0 && id < limit) || (has_ignored && id == ignored);
  }
};

// Throws the error of an index that the rule forbids.
[[noreturn]] void fail_index(const IndexRule& rule, int64_t position, int64_t id);

void check_index_range(const Cpu& cpu, const IndexRule& rule, int64_t n, const int32_t* ids);
void check_index_range(const Cuda& cuda, const IndexRule& rule, int64_t n, const int32_t* ids);

}  // namespace xtrain
