#include "core/cuda/launch.h"
#include "core/cuda/reduce.h"
#include "core/reduce_test_kernels.h"

namespace xtrain {
namespace {

constexpr float kLowest = -3e38f;

// No barrier but those of the reductions themselves.
__global__ void reduce_rows_of_block(int64_t rows, int columns, const float* x, RowReductions r) {
  __shared__ float scratch[kWarp];
  __shared__ Several<float, 2> pairs[kWarp];
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int count = row < rows ? columns : 0;
  float sum = 0, largest = kLowest;
  Several<float, 2> powers = {};
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    const float value = x[row * columns + i];
    sum += value;
    largest = fmaxf(largest, value);
    powers.value[0] += value;
    powers.value[1] += value * value;
  }
  sum = block_reduce(sum, Add(), 0.0f, scratch);
  largest = block_reduce(largest, Maximum(), kLowest, scratch);
  const float again = block_reduce(sum, Maximum(), kLowest, scratch);
  powers = block_reduce(powers, Add(), Several<float, 2>{}, pairs);
  if (row >= rows || threadIdx.x != (columns - 1) % blockDim.x) return;
  const bool agree = again == sum && powers.value[0] == sum;
  r.sums[row] = agree ? sum : kLowest;
  r.largest[row] = largest;
  r.sums_of_squares[row] = powers.value[1];
}

__global__ void reduce_groups(int count, const float* x, float* sums) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float sum = warp_reduce<8>(i < count ? x[i] : 0.0f, Add());
  if (i < count && i % 8 == 0) sums[i / 8] = sum;
}

}  // namespace

void reduce_rows(const Cuda& cuda, int64_t rows, int columns, int threads, int rows_of_block,
                 const float* x, const RowReductions& results) {
  XT_LAUNCH(cuda, (LaunchShape{grid_for(rows, rows_of_block), dim3(threads, rows_of_block)}),
            reduce_rows_of_block, rows, columns, x, results);
}

void reduce_groups_of_8(const Cuda& cuda, int count, const float* x, float* sums) {
  XT_LAUNCH(cuda, (LaunchShape{grid_for(count, kWarp), kWarp}), reduce_groups, count, x, sums);
}

}  // namespace xtrain
