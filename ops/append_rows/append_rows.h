#pragma once
// Rows written behind those that a table holds already, as a key-value cache grows. Values only:
// nothing here lies on a tape.
//
//   table[b, start[b] + t, ...] = x[b, t, ...] for t < count[b]
//   x [B, T, ...], table [B, capacity, ...] of one dtype, table contiguous; start, count [B] i32
//
// start and count are read where the kernel runs, so that a captured step writes to another place
// each time it is replayed. Rows that would lie outside the table are passed over: whoever counts
// on the host must have refused them before.
// Error: shapes, dtypes or devices that do not fit together.

#include "core/tensor.h"

namespace xtrain {

void append_rows(const Context& ctx, const Tensor& x, const Tensor& start, const Tensor& count,
                 Tensor table);
// The same of two tables at once, x and y and the tables of the same shapes and dtype.
void append_rows(const Context& ctx, const Tensor& x, const Tensor& y, const Tensor& start,
                 const Tensor& count, Tensor x_table, Tensor y_table);

// sum[i] = a[i] + b[i], all [n] i32. sum may be a or b.
void add_counts(const Context& ctx, const Tensor& a, const Tensor& b, Tensor sum);

}  // namespace xtrain
