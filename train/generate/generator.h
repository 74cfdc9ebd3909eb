#pragma once
// Writing on: tokens drawn from a model one after the other, for several texts at once. With a
// cache every prompt is read in one pass and each further token costs one token's work; without
// one, every token costs a pass over its whole text. Both give the same tokens, and those of a text
// do not depend on the texts beside it: bit for bit where the GEMM backend keeps rows apart (naive
// and tiled).

#include <atomic>
#include <span>
#include <vector>

#include "model/tiny_transformer.h"
#include "train/generate/sampler.h"

namespace xtrain {

struct GenerateOptions {
  SamplingOptions sampling;
  int64_t max_new_tokens = 200;
  std::vector<int32_t> end_ids;  // a text ends before one of these
  int64_t drawable_ids = 0;      // ids from here on, padding say, are never drawn; 0: all are
  int64_t context_length = 0;    // tokens the model sees; 0: max_position_embeddings
  // A text that has reached context_length: ends, or goes on with the model seeing its last
  // context_length tokens. As a window slides all positions change, so that each token then costs a
  // pass over the window.
  bool slide = false;
  bool cache = true;
};

// A text to continue: sample number `sample` of its prompt.
struct TextStart {
  std::vector<int32_t> prompt;
  uint64_t sample = 0;
};

enum class Ending : uint8_t {
  max_new_tokens,
  end_token,
  stopped,       // by the listener
  context_full,  // prompt and new tokens are context_length, or one more behind such a prompt
  interrupted
};
const char* name_of(Ending ending);  // "max_new_tokens", ...

struct Continuation {
  std::vector<int32_t> ids;  // the new ones
  Ending ending = Ending::interrupted;
};

struct GenerateTimes {
  int64_t prompt_tokens = 0, new_tokens = 0, decoded_tokens = 0;  // decoded: behind the first pass
  double prefill_seconds = 0.0, decode_seconds = 0.0;
};

struct Generation {
  std::vector<Continuation> texts;  // in the order of the starts
  GenerateTimes times;
};

class GenerationListener {
 public:
  virtual ~GenerationListener() = default;
  // Text number `text` has a new token; false ends it.
  virtual bool on_token(int64_t /*text*/, int32_t /*id*/) { return true; }
  virtual void on_end(int64_t /*text*/, Ending /*ending*/) {}
};

// A function of the weights, the starts and the options alone. InputError, before anything runs,
// for an empty prompt, an option out of range and, unless the window slides, a prompt longer than
// context_length. Ends early, with what there is, once `interrupted` is set.
Generation generate(const Context& ctx, TinyTransformer& model, const Exec& exec,
                    std::span<const TextStart> starts, const GenerateOptions& options,
                    GenerationListener* listener = nullptr,
                    const std::atomic<bool>* interrupted = nullptr);

}  // namespace xtrain
