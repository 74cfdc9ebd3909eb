#pragma once
// Matrix products by cuBLASLt. What it needs to know about a problem is found out once and kept.
// Which algorithm computes it is the library's first choice, unless the queue has other choices
// (gemm_choices.h).

#include <cublasLt.h>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>

#include "core/cuda/gemm_choices.h"
#include "core/cuda/queue_cuda.h"

namespace xtrain {

// A strided batch of products as cuBLAS sees it. Matrices lie by columns there, so rows of ours are
// its columns: c = a b by rows is c^T = b^T a^T by columns, with the operands exchanged.
struct LibraryProblem {
  struct Matrix {
    int64_t ld = 0, batch_stride = 0;
    cublasOperation_t op = CUBLAS_OP_N;
    int64_t alignment = 0;  // bytes, a power of two that divides every matrix's address
    auto operator<=>(const Matrix&) const = default;
  };
  int64_t m = 0, n = 0, k = 0, batches = 0;
  Matrix a, b, c;
  cudaDataType_t operand_type = CUDA_R_32F, result_type = CUDA_R_32F;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  int64_t bias_alignment = 0;  // as of a matrix; 0: no bias
  // Of what c is the GELU of, tanh's kind, kept as well, beside a bias; 0: c is the product itself.
  int64_t before_gelu_ld = 0;
  auto operator<=>(const LibraryProblem&) const = default;
};

// What a product reads and writes.
struct LibraryCall {
  float alpha;
  const void *a, *b;
  float beta;
  void* c;
  const void* bias = nullptr;   // [m], in the result's type, added to every column
  void* before_gelu = nullptr;  // in the result's type
};

class CublasLtPlan;

// The plans of a queue.
class CublasLtPlans {
 public:
  explicit CublasLtPlans(GemmChoices choices);
  ~CublasLtPlans();

  // Runs the product on the queue; false when cuBLASLt has no way to. f32 and bf16 operands only.
  // The same problem always takes the same way, which sums in a fixed order.
  bool run(const CudaQueue& queue, const LibraryProblem& problem, const LibraryCall& call);

 private:
  void choose(const CudaQueue& queue, const LibraryProblem& problem, const LibraryCall& call,
              CublasLtPlan& plan);

  GemmChoices choices_;
  std::map<LibraryProblem, std::unique_ptr<CublasLtPlan>> plans_;
};

}  // namespace xtrain
