#include "core/cuda/gemm_cublaslt.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/cuda/check.h"
#include "core/cuda/stream_times.h"
#include "core/error.h"

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

Operation make_operation(const CudaQueue& queue, const LibraryProblem& p) {
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
  if (p.before_gelu_ld > 0) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.before_gelu_ld);
    // Algorithms are offered for an address; each call brings its own, aligned as this one.
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, queue.workspace());
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

// The name of a problem in a file of choices.
std::string name_of(const LibraryProblem& p) {
  const auto matrix = [](const LibraryProblem::Matrix& x) {
    return text(x.op == CUBLAS_OP_T ? "T" : "N", x.ld, "/", x.batch_stride, "@", x.alignment);
  };
  const auto type = [](cudaDataType_t t) { return t == CUDA_R_16BF ? "bf16" : "f32"; };
  return text(p.m, "x", p.n, "x", p.k, " of ", p.batches, " ", matrix(p.a), " ", matrix(p.b), " ",
              matrix(p.c), " ", type(p.operand_type), " ", type(p.result_type), " compute ",
              static_cast<int>(p.compute),
              p.bias_alignment > 0 ? text(" bias@", p.bias_alignment) : "",
              p.before_gelu_ld > 0 ? text(" gelu of ", p.before_gelu_ld) : "");
}

// Memory for a result that is only timed.
class ScratchResult {
 public:
  explicit ScratchResult(const LibraryProblem& p) {
    const int64_t elements = p.c.batch_stride * (p.batches - 1) + p.c.ld * p.n;
    XT_CUDA(cudaMalloc(&data_, elements * (p.result_type == CUDA_R_16BF ? 2 : 4)));
  }
  ~ScratchResult() { cudaFree(data_); }
  ScratchResult(const ScratchResult&) = delete;
  ScratchResult& operator=(const ScratchResult&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

}  // namespace

class CublasLtPlan {
 public:
  CublasLtPlan(const CudaQueue& queue, const LibraryProblem& p)
      : problem_(p),
        operation_(make_operation(queue, p)),
        a_(make_layout(p.operand_type, p.m, p.k, p.a, p.batches)),
        b_(make_layout(p.operand_type, p.k, p.n, p.b, p.batches)),
        c_(make_layout(p.result_type, p.m, p.n, p.c, p.batches)) {
    const std::vector<cublasLtMatmulAlgo_t> first = offered(queue, 1);
    possible_ = !first.empty();
    if (possible_) algorithm_ = first[0];
  }

  bool possible() const { return possible_; }

  // False when the library does not take this choice of its own for this problem any more.
  bool choose(const CudaQueue& queue, const GemmChoice& choice) {
    cublasLtMatmulAlgo_t algorithm{};
    static_assert(sizeof algorithm.data == sizeof choice.algorithm);
    std::memcpy(algorithm.data, choice.algorithm.data(), sizeof algorithm.data);
    cublasLtMatmulHeuristicResult_t result{};
    const cublasStatus_t status =
        cublasLtMatmulAlgoCheck(queue.cublas_lt(), operation_.get(), a_.get(), b_.get(), c_.get(),
                                c_.get(), &algorithm, &result);
    if (status != CUBLAS_STATUS_SUCCESS || result.workspaceSize > CudaQueue::kWorkspaceBytes) {
      return false;
    }
    algorithm_ = algorithm;
    return true;
  }

  // The fastest of what the library offers for this call.
  GemmChoice measure(const CudaQueue& queue, LibraryCall call) const {
    constexpr int kOffers = 24;
    const ScratchResult result(problem_);
    call.c = result.data();
    const std::vector<cublasLtMatmulAlgo_t> offers = offered(queue, kOffers);
    const std::vector<double> microseconds = times_in_turns(
        queue.stream(), offers.size(), [&](size_t i) { run(queue, call, offers[i]); });
    const auto best = std::min_element(microseconds.begin(), microseconds.end());
    GemmChoice choice{{}, *best, microseconds[0]};
    const auto& algorithm = offers[best - microseconds.begin()].data;
    std::memcpy(choice.algorithm.data(), algorithm, sizeof algorithm);
    return choice;
  }

  void run(const CudaQueue& queue, const LibraryCall& call) const { run(queue, call, algorithm_); }

 private:
  // The library's best guesses, the best first.
  std::vector<cublasLtMatmulAlgo_t> offered(const CudaQueue& queue, int most) const {
    const Preference preference = make_preference(problem_);
    std::vector<cublasLtMatmulHeuristicResult_t> results(most);
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        queue.cublas_lt(), operation_.get(), a_.get(), b_.get(), c_.get(), c_.get(),
        preference.get(), most, results.data(), &found);
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return algorithms;
    XT_CUDA(status);
    for (int i = 0; i < found; ++i) {
      if (results[i].state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(results[i].algo);
    }
    return algorithms;
  }

  void run(const CudaQueue& queue, const LibraryCall& call,
           const cublasLtMatmulAlgo_t& algorithm) const {
    if (call.bias) {
      XT_CUDA(cublasLtMatmulDescSetAttribute(operation_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                             &call.bias, sizeof call.bias));
    }
    if (call.before_gelu) {
      XT_CUDA(cublasLtMatmulDescSetAttribute(operation_.get(),
                                             CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                             &call.before_gelu, sizeof call.before_gelu));
    }
    XT_CUDA(cublasLtMatmul(queue.cublas_lt(), operation_.get(), &call.alpha, call.a, a_.get(),
                           call.b, b_.get(), &call.beta, call.c, c_.get(), call.c, c_.get(),
                           &algorithm, queue.workspace(), CudaQueue::kWorkspaceBytes,
                           queue.stream()));
  }

  const LibraryProblem problem_;
  Operation operation_;
  Layout a_, b_, c_;
  cublasLtMatmulAlgo_t algorithm_{};
  bool possible_ = false;
};

CublasLtPlans::CublasLtPlans(GemmChoices choices) : choices_(std::move(choices)) {}
CublasLtPlans::~CublasLtPlans() = default;

bool CublasLtPlans::run(const CudaQueue& queue, const LibraryProblem& problem,
                        const LibraryCall& call) {
  std::unique_ptr<CublasLtPlan>& plan = plans_[problem];
  if (!plan) {
    plan = std::make_unique<CublasLtPlan>(queue, problem);
    if (plan->possible()) choose(queue, problem, call, *plan);
  }
  if (!plan->possible()) return false;
  plan->run(queue, call);
  return true;
}

void CublasLtPlans::choose(const CudaQueue& queue, const LibraryProblem& p, const LibraryCall& call,
                           CublasLtPlan& plan) {
  constexpr int64_t kTooSmall = int64_t{1} << 24;  // for a difference to matter
  const std::string name = name_of(p);
  const GemmChoice* choice = choices_.find(name);
  if (!choice && choices_.measures() && p.m * p.n * p.k * p.batches >= kTooSmall) {
    choices_.add(name, plan.measure(queue, call));
    choice = choices_.find(name);
  }
  if (!choice) return;
  check_input(plan.choose(queue, *choice), choices_.path(), ": cuBLASLt refuses the algorithm for ",
              name, "; remove the file");
}

}  // namespace xtrain
