#include "model/decoder_checks.h"
#include "support/gpu.h"

using namespace xtrain;

TEST_CASE("a recorded token on the GPU has the bits of a pass", "[cuda]") {
  for (const auto& [name, config] : small_models(11, 60)) {
    for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
      for (const AttentionKind attention : kBothAttentions) {
        INFO(name << " in " << dtype << ", attention " << static_cast<int>(attention));
        check_decoder(test_cuda_context(), config, exec_of(dtype, attention));
      }
    }
  }
}

// Of sizes that the kernels of generation serve: 4 packs a head at least, whole packs a row.
TEST_CASE("a recorded token of early kernels on the GPU has the bits of a pass", "[cuda]") {
  for (auto [name, config] : small_models(11, 60)) {
    if (config.model_type == ModelType::gpt2) continue;  // its heads share out the width
    config.head_dim = 64;
    config.intermediate_size = 32;
    for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
      INFO(name << " in " << dtype);
      check_decoder(test_cuda_context(), config, exec_of(dtype, AttentionKind::flash));
    }
  }
}
