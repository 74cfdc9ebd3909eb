#include "core/cuda/launch.h"
#include "core/cuda/pack.h"
#include "train/adamw/adamw_kernels.h"
#include "train/clip_kernels.h"

namespace xtrain {
namespace {

// Elements that a thread updates at a time: 16 bytes of every arena in the accumulator's type.
template <class T>
inline constexpr int kGroup = kPackSize<Accumulator<T>>;

template <class T>
struct alignas(kGroup<T> * sizeof(T)) ValueGroup {
  T value[kGroup<T>];
};

template <class T, class A>
__device__ void update_one(const AdamWFactors<A>& factors, A decay, const AdamWArenas<T>& arenas,
                           int64_t i, int64_t shift) {
  A& w = arenas.master(i, shift);
  adamw_element(factors, decay, arenas.grads[i], w, arenas.m[i - shift], arenas.v[i - shift]);
  if constexpr (!std::is_same_v<T, A>) arenas.values[i] = static_cast<T>(w);
}

template <class T, class A>
__device__ void update_group(const AdamWFactors<A>& factors, A decay, const AdamWArenas<T>& arenas,
                             int64_t i, int64_t shift) {
  A *w_at = &arenas.master(i, shift), *m_at = arenas.m + (i - shift),
    *v_at = arenas.v + (i - shift);
  const Pack<A> g = load_pack_streaming(arenas.grads + i);
  Pack<A> w = load_pack(w_at), m = load_pack(m_at), v = load_pack(v_at);
#pragma unroll
  for (int j = 0; j < kGroup<T>; ++j) {
    adamw_element(factors, decay, g.value[j], w.value[j], m.value[j], v.value[j]);
  }
  store_pack(w_at, w);
  store_pack(m_at, m);
  store_pack(v_at, v);
  if constexpr (!std::is_same_v<T, A>) {
    ValueGroup<T> values;
#pragma unroll
    for (int j = 0; j < kGroup<T>; ++j) values.value[j] = static_cast<T>(w.value[j]);
    *reinterpret_cast<ValueGroup<T>*>(arenas.values + i) = values;
  }
}

// One block a piece. Groups start at multiples of their size in the arenas, which are aligned; a
// piece may begin and end inside a group.
template <class T>
__global__ void adamw_pieces(AdamWOptions options, const double* scalars, const double* scale,
                             int64_t pieces, const int64_t* table, AdamWArenas<T> arenas) {
  using A = Accumulator<T>;
  const GradScale grad = load_grad_scale(scale);
  if (grad.finite == 0.0) return;
  const AdamWFactors<A> factors = adamw_factors<A>(options, scalars, grad.factor);
  for (int64_t p = blockIdx.x; p < pieces; p += gridDim.x) {
    const ArenaPiece piece = piece_at(table, p);
    const A decay = piece.decays ? factors.decay : A{0};
    const int64_t first = piece.begin / kGroup<T>, end = ceil_div(piece.end, kGroup<T>);
    for (int64_t group = first + threadIdx.x; group < end; group += blockDim.x) {
      const int64_t i = group * kGroup<T>;
      if (i >= piece.begin && i + kGroup<T> <= piece.end) {
        update_group(factors, decay, arenas, i, piece.shift);
        continue;
      }
      for (int64_t j = max(i, piece.begin); j < min(i + kGroup<T>, piece.end); ++j) {
        update_one(factors, decay, arenas, j, piece.shift);
      }
    }
  }
}

}  // namespace

template <class T>
void adamw_update(const Cuda& cuda, const AdamWOptions& options, const double* scalars,
                  const double* scale, int64_t pieces, const int64_t* table,
                  const AdamWArenas<T>& arenas) {
  constexpr int kThreads = 256;
  XT_LAUNCH(cuda, (LaunchShape{grid_for(pieces, 1), kThreads}), (adamw_pieces<T>), options, scalars,
            scale, pieces, table, arenas);
}

#define XT_ADAMW(T)                                                                          \
  template void adamw_update(const Cuda&, const AdamWOptions&, const double*, const double*, \
                             int64_t, const int64_t*, const AdamWArenas<T>&);
XT_ADAMW(double)
XT_ADAMW(float)
XT_ADAMW(BFloat16)
#undef XT_ADAMW

}  // namespace xtrain
