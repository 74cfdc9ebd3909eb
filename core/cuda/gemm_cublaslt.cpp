#include "core/cuda/gemm_cublaslt.h"

#include "core/cuda/check.h"

namespace xtrain {
namespace {

// Owns a descriptor of cuBLASLt.
template <class Handle, cublasStatus_t (*destroy)(Handle)>
struct Destroy {
  using pointer = Handle;
  void operator()(Handle handle) const { destroy(handle); }
};
template <class Handle, cublasStatus_t (*destroy)(Handle)>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<Handle, destroy>>;
using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

Operation make_operation(const LibraryProblem& p) {
  cublasLtMatmulDesc_t made = nullptr;
  XT_CUDA(cublasLtMatmulDescCreate(&made, p.compute, CUDA_R_32F));
  Operation operation(made);
  const auto set = [&](cublasLtMatmulDescAttributes_t what, const auto& value) {
    XT_CUDA(cublasLtMatmulDescSetAttribute(operation.get(), what, &value, sizeof value));
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, p.a.op);
  set(CUBLASLT_MATMUL_DESC_TRANSB, p.b.op);
  if (p.bias_alignment > 0) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, p.result_type);
  }
  return operation;
}

// Of a matrix whose op() is rows x columns.
Layout make_layout(cudaDataType_t type, int64_t rows, int64_t columns,
                   const LibraryProblem::Matrix& matrix, int64_t batches) {
  if (matrix.op == CUBLAS_OP_T) std::swap(rows, columns);
  cublasLtMatrixLayout_t made = nullptr;
  XT_CUDA(cublasLtMatrixLayoutCreate(&made, type, rows, columns, matrix.ld));
  Layout layout(made);
  const auto set = [&](cublasLtMatrixLayoutAttribute_t what, const auto& value) {
    XT_CUDA(cublasLtMatrixLayoutSetAttribute(layout.get(), what, &value, sizeof value));
  };
  set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(batches));
  set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix.batch_stride);
  return layout;
}

Preference make_preference(const LibraryProblem& p) {
  cublasLtMatmulPreference_t made = nullptr;
  XT_CUDA(cublasLtMatmulPreferenceCreate(&made));
  Preference preference(made);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
    XT_CUDA(cublasLtMatmulPreferenceSetAttribute(preference.get(), what, &value, sizeof value));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{CudaQueue::kWorkspaceBytes});
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(p.a.alignment));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(p.b.alignment));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(p.c.alignment));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(p.c.alignment));
  // Where k is split, partial sums are kept apart in the compute type and added in their order. The
  // other schemes round them to the result's type or add them as they come.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  return preference;
}

}  // namespace

class CublasLtPlan {
 public:
  CublasLtPlan(const CudaQueue& queue, const LibraryProblem& p)
      : operation_(make_operation(p)),
        a_(make_layout(p.operand_type, p.m, p.k, p.a, p.batches)),
        b_(make_layout(p.operand_type, p.k, p.n, p.b, p.batches)),
        c_(make_layout(p.result_type, p.m, p.n, p.c, p.batches)) {
    const Preference preference = make_preference(p);
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(queue.cublas_lt(), operation_.get(), a_.get(), b_.get(),
                                       c_.get(), c_.get(), preference.get(), 1, &best, &found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return;
    XT_CUDA(status);
    possible_ = found > 0 && best.state == CUBLAS_STATUS_SUCCESS;
    algorithm_ = best.algo;
  }

  bool possible() const { return possible_; }

  void run(const CudaQueue& queue, float alpha, const void* a, const void* b, float beta, void* c,
           const void* bias) const {
    if (bias) {
      XT_CUDA(cublasLtMatmulDescSetAttribute(operation_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                             &bias, sizeof bias));
    }
    XT_CUDA(cublasLtMatmul(queue.cublas_lt(), operation_.get(), &alpha, a, a_.get(), b, b_.get(),
                           &beta, c, c_.get(), c, c_.get(), &algorithm_, queue.workspace(),
                           CudaQueue::kWorkspaceBytes, queue.stream()));
  }

 private:
  Operation operation_;
  Layout a_, b_, c_;
  cublasLtMatmulAlgo_t algorithm_{};
  bool possible_ = false;
};

CublasLtPlans::CublasLtPlans() = default;
CublasLtPlans::~CublasLtPlans() = default;

bool CublasLtPlans::run(const CudaQueue& queue, const LibraryProblem& problem, float alpha,
                        const void* a, const void* b, float beta, void* c, const void* bias) {
  std::unique_ptr<CublasLtPlan>& plan = plans_[problem];
  if (!plan) plan = std::make_unique<CublasLtPlan>(queue, problem);
  if (!plan->possible()) return false;
  plan->run(queue, alpha, a, b, beta, c, bias);
  return true;
}

}  // namespace xtrain
