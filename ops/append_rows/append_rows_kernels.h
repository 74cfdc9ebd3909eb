#pragma once
// The kernels of append_rows.h.

#include <span>

#include "core/dispatch.h"

namespace xtrain {

struct AppendRows {
  int64_t batch, time, width, capacity;  // width: elements of a row
  const int32_t* start;                  // [batch]
  const int32_t* count;                  // [batch]

  // Where row t of sequence b goes in the table, counted in rows; -1: nowhere.
  XT_HOST_DEVICE int64_t target(int64_t b, int64_t t) const {
    const int64_t at = int64_t{start[b]} + t;
    return t < count[b] && at >= 0 && at < capacity ? b * capacity + at : -1;
  }
};

// What goes into one table.
template <class T>
struct TableRows {
  const T* x = nullptr;
  int64_t batch_stride = 0, time_stride = 0;  // of x, in elements; a row is contiguous
  T* table = nullptr;
};

// Of one table or two.
template <class T>
void append_rows(const Cpu& cpu, const AppendRows& p, std::span<const TableRows<T>> tables);
template <class T>
void append_rows(const Cuda& cuda, const AppendRows& p, std::span<const TableRows<T>> tables);

void add_counts(const Cpu& cpu, int64_t n, const int32_t* a, const int32_t* b, int32_t* sum);
void add_counts(const Cuda& cuda, int64_t n, const int32_t* a, const int32_t* b, int32_t* sum);

}  // namespace xtrain
