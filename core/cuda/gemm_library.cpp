// Matrix products by NVIDIA's libraries: cuBLASLt for f32 and bf16, cuBLAS for f64 and for what
// cuBLASLt does not take. Products of few rows are left to a kernel of ours.

#include <algorithm>

#include "core/cuda/check.h"
#include "core/cuda/gemm_backends_cuda.h"
#include "core/cuda/gemm_cublaslt.h"

namespace xtrain {
namespace {

template <class T>
constexpr cudaDataType_t kType = std::is_same_v<T, double>  ? CUDA_R_64F
                                 : std::is_same_v<T, float> ? CUDA_R_32F
                                                            : CUDA_R_16BF;

// The largest power of two, up to 16, of which all these numbers of bytes are multiples.
int64_t common_alignment(std::initializer_list<int64_t> bytes) {
  int64_t all = 16;
  for (int64_t b : bytes) all |= b;
  return all & -all;
}

template <class T>
LibraryProblem::Matrix library_matrix(const T* x, int64_t ld, bool transposed,
                                      int64_t batch_stride) {
  constexpr int64_t kSize = sizeof(T);
  return {ld, batch_stride, transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
          common_alignment({static_cast<int64_t>(reinterpret_cast<uintptr_t>(x)), ld * kSize,
                            batch_stride * kSize})};
}

void run_cublas(const CudaQueue& queue, const LibraryProblem& p, const void* alpha, const void* a,
                const void* b, const void* beta, void* c) {
  XT_CUDA(cublasGemmStridedBatchedEx_64(
      queue.cublas(), p.a.op, p.b.op, p.m, p.n, p.k, alpha, a, p.operand_type, p.a.ld,
      p.a.batch_stride, b, p.operand_type, p.b.ld, p.b.batch_stride, beta, c, p.result_type, p.c.ld,
      p.c.batch_stride, p.batches, p.compute, CUBLAS_GEMM_DEFAULT));
}

// `batches` matrices, their strides given, in f32 sums.
template <class T, class Out>
LibraryProblem library_problem(const GemmProblem& p, int64_t batches, const int64_t (&stride)[3],
                               const T* a, const T* b, const Out* c, bool tf32) {
  const bool rounds = tf32 && std::is_same_v<T, float>;
  return {p.n,
          p.m,
          p.k,
          batches,
          library_matrix(b, p.b.ld, p.b.transposed, stride[1]),
          library_matrix(a, p.a.ld, p.a.transposed, stride[0]),
          library_matrix(c, p.ldc, false, stride[2]),
          kType<T>,
          kType<Out>,
          rounds ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F};
}

// What an epilogue writes besides the result: lines of whole 16 bytes at multiples of these.
template <class T>
bool fits_epilogue(int64_t ld, const T* x) {
  return common_alignment({static_cast<int64_t>(reinterpret_cast<uintptr_t>(x)),
                           ld * static_cast<int64_t>(sizeof(T))}) == 16;
}

void wait_if_asked(const CudaQueue& queue) {
  if (queue.waits_after_launch()) XT_CUDA(cudaStreamSynchronize(queue.stream()));
}

template <class T, class Out>
void run_strided_batch(CudaQueue& queue, const GemmProblem& p, int64_t batches,
                       const int64_t (&stride)[3], const T* a, const T* b, Out* c, bool tf32) {
  LibraryProblem library = library_problem(p, batches, stride, a, b, c, tf32);
  if constexpr (std::is_same_v<T, double>) {
    library.compute = CUBLAS_COMPUTE_64F;
    run_cublas(queue, library, &p.alpha, b, a, &p.beta, c);
  } else {
    const float alpha = static_cast<float>(p.alpha), beta = static_cast<float>(p.beta);
    if (!queue.cublas_lt_plans().run(queue, library, {alpha, b, a, beta, c})) {
      run_cublas(queue, library, &alpha, b, a, &beta, c);
    }
  }
  wait_if_asked(queue);
}

}  // namespace

// The libraries take one batch dimension: the longest of those that cannot be joined. The others
// are a loop of calls.
template <class T, class Out>
void library_gemm(const Cuda& cuda, const GemmProblem& p, const T* a, const T* b, Out* c,
                  bool tf32) {
  // A product over nothing leaves beta * c; the libraries may refuse the strides of its operands.
  if (p.k == 0) return naive_gemm(cuda, p, a, b, c);
  if (few_rows_supports(p, a, b)) return few_rows_gemm(cuda, p, a, b, c);
  constexpr int64_t kMostBatches = 65535;  // kernels count batches in a short dimension of the grid
  StridedIndex<3> outer(p.batch, {p.batch_stride_a, p.batch_stride_b, p.batch_stride_c});
  int64_t length = 1, stride[3] = {};
  if (outer.rank > 0) {
    const int longest =
        static_cast<int>(std::max_element(outer.size, outer.size + outer.rank) - outer.size);
    std::swap(length, outer.size[longest]);
    for (int t = 0; t < 3; ++t) std::swap(stride[t], outer.stride[t][longest]);
  }
  for (int64_t i = 0; i < outer.count / length; ++i) {
    int64_t offset[3];
    outer.offsets(i, offset);
    for (int64_t first = 0; first < length; first += kMostBatches) {
      run_strided_batch(queue_of(cuda), p, std::min(length - first, kMostBatches), stride,
                        a + offset[0] + first * stride[0], b + offset[1] + first * stride[1],
                        c + offset[2] + first * stride[2], tf32);
    }
  }
}

template <class T>
bool library_gemm_bias(const Cuda& cuda, const GemmProblem& p, const T* a, const T* b,
                       const T* bias, T* c, T* gelu, bool tf32) {
  if constexpr (std::is_same_v<T, double>) {
    return false;
  } else {
    if (p.k == 0 || few_rows_supports(p, a, b)) return false;
    LibraryProblem library = library_problem(p, 1, {0, 0, 0}, a, b, gelu ? gelu : c, tf32);
    library.bias_alignment =
        common_alignment({static_cast<int64_t>(reinterpret_cast<uintptr_t>(bias))});
    if (gelu) {
      if (!std::is_same_v<T, BFloat16> || !fits_epilogue(p.ldc, c)) return false;
      library.before_gelu_ld = p.ldc;
    }
    CudaQueue& queue = queue_of(cuda);
    const LibraryCall call{1.0f, b, a, 0.0f, gelu ? gelu : c, bias, gelu ? c : nullptr};
    if (!queue.cublas_lt_plans().run(queue, library, call)) return false;
    wait_if_asked(queue);
    return true;
  }
}

template void library_gemm(const Cuda&, const GemmProblem&, const double*, const double*, double*,
                           bool);
template void library_gemm(const Cuda&, const GemmProblem&, const float*, const float*, float*,
                           bool);
template void library_gemm(const Cuda&, const GemmProblem&, const BFloat16*, const BFloat16*,
                           BFloat16*, bool);
template void library_gemm(const Cuda&, const GemmProblem&, const BFloat16*, const BFloat16*,
                           float*, bool);
template bool library_gemm_bias(const Cuda&, const GemmProblem&, const double*, const double*,
                                const double*, double*, double*, bool);
template bool library_gemm_bias(const Cuda&, const GemmProblem&, const float*, const float*,
                                const float*, float*, float*, bool);
template bool library_gemm_bias(const Cuda&, const GemmProblem&, const BFloat16*, const BFloat16*,
                                const BFloat16*, BFloat16*, BFloat16*, bool);

}  // namespace xtrain
