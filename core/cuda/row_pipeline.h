#pragma once
// Rows on their way to a block while it works on others.

#include "core/cuda/row.h"
#include "core/cuda/shared_memory.h"

namespace xtrain {

// The rows of a block that stays, one after the other: threads of one threadIdx.y have row
// blockIdx.x * blockDim.y + threadIdx.y of each matrix of `inputs`, then the one gridDim.x *
// blockDim.y further on. Rows that are held wait in shared memory, which costs no registers; a
// thread reads only what it copied itself, so there is no barrier.
//
//   RowPipeline<Shape, 2> rows(count, width, {x, y});
//   while (rows.next()) ... rows.values(0, p, column) ...
template <class Shape, int kInputs>
class RowPipeline {
 public:
  using T = typename Shape::Element;
  using Column = typename Shape::Column;

  // The last input may be null. The kernel's dynamic shared memory must have pipeline_bytes.
  __device__ RowPipeline(int64_t rows, int64_t width, const T* const (&inputs)[kInputs])
      : shape_(width),
        rows_(rows),
        step_(int64_t{gridDim.x} * blockDim.y),
        row_(int64_t{blockIdx.x} * blockDim.y + threadIdx.y - step_),
        start_(row_ * width),
        stride_(step_ * width) {
    extern __shared__ uint4 row_pipeline_slots[];
    const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
    pitch_ = blockDim.x * blockDim.y * sizeof(Pack<T>);
    const unsigned base = shared_address(row_pipeline_slots);
    stages_ = pitch_ * Shape::kPacks * (inputs[kInputs - 1] ? kInputs : kInputs - 1);
    slots_ = base + thread * sizeof(Pack<T>) + stages_;
    stages_ += 2 * (slots_ - stages_);
    for (int i = 0; i < kInputs; ++i) inputs_[i] = inputs[i];
    fetch_following();
  }

  // Goes to the next row; false when no thread of the block has one.
  __device__ bool next() {
    row_ += step_;
    start_ += stride_;
    if (row_ - threadIdx.y >= rows_) return false;
    slots_ = stages_ - slots_;
    fetch_following();
    copy_async_wait<1>();
    return true;
  }

  __device__ int64_t following_row() const { return row_ + step_; }
  __device__ bool has_row() const { return row_ < rows_; }
  // The offset of the row's first element.
  __device__ int64_t start() const { return start_; }
  // Threads that have no row may compute with what values gives them, but must not keep the result.
  // Where rows are not held, a block has one at a time, and all its threads have it.
  __device__ const Shape& shape() const { return shape_; }

  __device__ Values<T> values(int input, int p, Column column) const {
    if constexpr (Shape::kHeld) {
      Pack<T> pack;
      *reinterpret_cast<uint4*>(&pack) = load_shared(slot(slots_, input, p));
      return values_of(pack);
    } else {
      return values_of(shape_.load(inputs_[input] + start_, column));
    }
  }

 private:
  __device__ unsigned slot(unsigned stage, int input, int p) const {
    return stage + (input * Shape::kPacks + p) * pitch_;
  }

  __device__ void fetch_following() const {
    if constexpr (Shape::kHeld) {
#pragma unroll
      for (int input = 0; input < kInputs; ++input) {
        if (!inputs_[input] || following_row() >= rows_) continue;
        const T* source = inputs_[input] + start_ + stride_;
        shape_.for_packs([&](int p, Column column) {
          const unsigned target = slot(stages_ - slots_, input, p);
          if constexpr (Shape::kFit != RowFit::loose) {
            copy_async(target, source + column);
          } else {
            const Pack<T> pack = shape_.load(source, column);
            store_shared(target, *reinterpret_cast<const uint4*>(&pack));
          }
        });
      }
      copy_async_commit();
    }
  }

  Shape shape_;
  int64_t rows_, step_;
  int64_t row_, start_, stride_;
  unsigned slots_;   // the thread's slots of the row at hand
  unsigned stages_;  // this and the slots of the following row added
  unsigned pitch_;   // from slot to slot
  const T* inputs_[kInputs];
};

// The shared memory of a pipeline with so many inputs that are not null.
inline int64_t pipeline_bytes(const RowBlock& block, int inputs) {
  return int64_t{2} * inputs * block.packs * block.threads * block.rows * 16;
}

}  // namespace xtrain
