#include "tools/step_work.h"

#include "core/config_reader.h"
#include "support/catch.h"

using namespace xtrain;

namespace {

RunConfig gpt2() {
  ConfigReader reader;
  reader.add_file(XT_SOURCE_DIR "/configs/gpt2_124m.json");
  reader.set("train.total_batch_size=null");
  reader.set("train.batch_size=32");
  return resolve_run_config(reader);
}

Work of(const StepWork& work, KernelKind kind) {
  return work[static_cast<int>(kind)];
}

}  // namespace

TEST_CASE("the least work of a step of GPT-2 is that counted by hand", "[tools]") {
  const RunConfig run = gpt2();
  const int64_t layer = 768 * (3 * 768 + 768 + 4 * 768 + 4 * 768);
  CHECK(product_weights(run.model) == 12 * layer + 50257 * 768);
  const double attention = 12 * 7.0 * 1024 * 768;  // operations a token
  CHECK(operations_per_token(run) == 6.0 * product_weights(run.model) + attention);
  const StepWork work = work_of_step(run);
  const double tokens = 32 * 1024, matrix = tokens * 768 * 2;  // bytes of one in bf16
  CHECK(of(work, KernelKind::products).operations == 6.0 * product_weights(run.model) * tokens);
  CHECK(of(work, KernelKind::attention_forward).operations == attention * tokens * 2 / 7);
  CHECK(of(work, KernelKind::attention_backward).operations == attention * tokens * 5 / 7);
  CHECK(of(work, KernelKind::norms).bytes == (12 * 16 + 5) * matrix);
  CHECK(of(work, KernelKind::activations).bytes == 12 * 5 * 4 * matrix);
  CHECK(of(work, KernelKind::loss).bytes == 2 * tokens * 50257 * 2);
  CHECK(of(work, KernelKind::bias_gradients).bytes == 12 * 3 * matrix);
  CHECK(of(work, KernelKind::optimizer).bytes == 34.0 * parameter_count(run.model));
  CHECK(of(work, KernelKind::other).bytes == 0.0);
}

TEST_CASE("kernels are told apart by their names", "[tools]") {
  const std::pair<const char*, KernelKind> kernels[] = {
      {"nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", KernelKind::products},
      {"void cublasLt::splitKreduce_kernel<32, 16, int, float>", KernelKind::products},
      {"void xtrain::(anonymous namespace)::flash_forward_wgmma<xtrain::(anonymous "
       "namespace)::ForwardTiling<64, 3, 128, 4, 2> >",
       KernelKind::attention_forward},
      {"void xtrain::flash_wgmma::(anonymous namespace)::key_gradients_wgmma<>",
       KernelKind::attention_backward},
      {"void xtrain::(anonymous namespace)::query_terms<64>", KernelKind::attention_backward},
      {"void xtrain::(anonymous namespace)::norm_backward_rows<true, true>", KernelKind::norms},
      {"void xtrain::map_pairs<8, xtrain::ChainRule<xtrain::(anonymous "
       "namespace)::GeluTanh<xtrain::BFloat16>, float> >",
       KernelKind::activations},
      {"void xtrain::(anonymous namespace)::gradients_of_rows<xtrain::BFloat16, 2>",
       KernelKind::loss},
      {"void cub::CUB_300001_SM_900::detail::radix_sort::DeviceRadixSortOnesweepKernel<>",
       KernelKind::embedding},
      {"void xtrain::(anonymous namespace)::sum_columns_of_pieces<float, float>",
       KernelKind::norms},
      {"void xtrain::(anonymous namespace)::sum_columns_of_pieces<xtrain::BFloat16, double>",
       KernelKind::bias_gradients},
      {"void xtrain::(anonymous namespace)::adamw_pieces<xtrain::BFloat16>", KernelKind::optimizer},
      {"copy", KernelKind::other},
  };
  for (const auto& [name, kind] : kernels) {
    INFO(name);
    CHECK(kind_of_kernel(name) == kind);
  }
}
