#pragma once
// Embeddings and heads that a model does not hold.

#include "autodiff/parameter.h"

namespace xtrain {

class TableReader {
 public:
  virtual ~TableReader() = default;
  // The table's rows of ids [...]: [..., columns]. ids must lie in the table.
  virtual Tensor rows(const Context& ctx, const Parameter& table, const Tensor& ids) = 0;
  // x [n, columns] table^T: [n, rows of the table].
  virtual Tensor product(const Context& ctx, const Tensor& x, const Parameter& table) = 0;
};

}  // namespace xtrain
