#include "core/check_indices.h"

#include "core/check_indices_kernels.h"
#include "core/error.h"

namespace xtrain {

void fail_index(const IndexRule& rule, int64_t position, int64_t id) {
  std::string or_ignored;
  if (rule.has_ignored) or_ignored = text(" or be the ignore index ", rule.ignored);
  fail(rule.op, ": ", rule.what, " must lie in [0, ", rule.limit, ")", or_ignored, "; got ", id,
       " at position ", position);
}

void check_indices(const Context& ctx, const char* op, const char* what, const Tensor& ids,
                   int64_t limit, std::optional<int32_t> ignored) {
  check(ids.is_contiguous(), op, ": ", what, " must be contiguous; got strides ", ids.strides());
  const IndexRule rule{op, what, limit, ignored.has_value(), ignored.value_or(0)};
  const int32_t* values = ids.data<int32_t>();
  dispatch_device(ctx, ids, op,
                  [&](auto device) { check_index_range(device, rule, ids.numel(), values); });
}

}  // namespace xtrain
