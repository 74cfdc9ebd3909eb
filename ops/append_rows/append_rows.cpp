#include "ops/append_rows/append_rows.h"

#include <vector>

#include "core/copy.h"
#include "core/error.h"
#include "ops/append_rows/append_rows_kernels.h"

namespace xtrain {
namespace {

void check_counts(const Context& ctx, const char* name, const Tensor& x, int64_t batch) {
  check(x.defined() && x.dtype() == Dtype::i32 && x.shape() == Shape{batch}, "append_rows: ", name,
        " must be i32 of shape ", Shape{batch});
  check(x.device() == ctx.device, "append_rows: ", name, " must lie on the context's device ",
        ctx.device, "; got ", x.device());
}

void check_rows(const Tensor& x, const Tensor& table) {
  check(x.defined() && table.defined(), "append_rows: x and table must be given");
  bool fits = x.rank() >= 2 && x.rank() == table.rank() && x.size(0) == table.size(0);
  for (int i = 2; fits && i < x.rank(); ++i) fits = x.size(i) == table.size(i);
  check(fits && x.dtype() == table.dtype(),
        "append_rows: x [B, T, ...] and table [B, capacity, ...] must agree but in their second "
        "size; got ",
        x.dtype(), " ", x.shape(), " and ", table.dtype(), " ", table.shape());
  check(table.is_contiguous(), "append_rows: the table must be contiguous");
  check(x.device() == table.device(), "append_rows: x and table must lie on one device; got ",
        x.device(), " and ", table.device());
}

// x as [B, T, elements of a row], in place where each row is contiguous.
Tensor as_rows(const Context& ctx, const Tensor& x) {
  const int64_t width = x.size(0) * x.size(1) > 0 ? x.numel() / (x.size(0) * x.size(1)) : 0;
  const Shape shape{x.size(0), x.size(1), width};
  const Tensor rows = (x.can_reshape(shape) ? x : contiguous(ctx, x)).reshape(shape);
  return rows.stride(2) == 1 || width <= 1 ? rows : contiguous(ctx, rows);
}

// x[i] into tables[i]; all of the same shapes and dtype.
void append_to_tables(const Context& ctx, const std::vector<Tensor>& x, const Tensor& start,
                      const Tensor& count, std::vector<Tensor> tables) {
  check_counts(ctx, "start", start, x[0].size(0));
  check_counts(ctx, "count", count, x[0].size(0));
  if (x[0].numel() == 0) return;
  const Tensor from = contiguous(ctx, start), many = contiguous(ctx, count);
  std::vector<Tensor> rows;
  for (const Tensor& each : x) rows.push_back(as_rows(ctx, each));
  const AppendRows p{x[0].size(0),      x[0].size(1),         rows[0].size(2),
                     tables[0].size(1), from.data<int32_t>(), many.data<int32_t>()};
  dispatch(ctx, rows[0], "append_rows", [&](auto device, auto scalar) {
    using T = decltype(scalar);
    std::vector<TableRows<T>> all;
    for (size_t i = 0; i < rows.size(); ++i) {
      const Tensor& from_x = rows[i];
      all.push_back(
          {from_x.data<T>(), from_x.stride(0), from_x.stride(1), tables[i].mutable_data<T>()});
    }
    append_rows(device, p, std::span<const TableRows<T>>(all));
  });
}

}  // namespace

void append_rows(const Context& ctx, const Tensor& x, const Tensor& start, const Tensor& count,
                 Tensor table) {
  check_rows(x, table);
  append_to_tables(ctx, {x}, start, count, {table});
}

void append_rows(const Context& ctx, const Tensor& x, const Tensor& y, const Tensor& start,
                 const Tensor& count, Tensor x_table, Tensor y_table) {
  check_rows(x, x_table);
  check_rows(y, y_table);
  check(x.shape() == y.shape() && x_table.shape() == y_table.shape() && x.dtype() == y.dtype(),
        "append_rows: both tables must have the same shapes and dtype; got ", x_table.dtype(), " ",
        x_table.shape(), " and ", y_table.dtype(), " ", y_table.shape());
  append_to_tables(ctx, {x, y}, start, count, {x_table, y_table});
}

void add_counts(const Context& ctx, const Tensor& a, const Tensor& b, Tensor sum) {
  check(a.rank() == 1 && a.shape() == b.shape() && a.shape() == sum.shape() && a.is_contiguous() &&
            b.is_contiguous() && sum.is_contiguous(),
        "add_counts: a, b and sum must be contiguous [n]; got ", a.shape(), ", ", b.shape(),
        " and ", sum.shape());
  dispatch_device(ctx, a, "add_counts", [&](auto device) {
    add_counts(device, a.numel(), a.data<int32_t>(), b.data<int32_t>(),
               sum.mutable_data<int32_t>());
  });
}

}  // namespace xtrain
