#include "train/generate/generator.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "core/copy.h"
#include "core/error.h"
#include "model/decoder.h"

namespace xtrain {
namespace {

using Rows = std::vector<std::vector<int32_t>>;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class Generator {
 public:
  Generator(const Context& ctx, TinyTransformer& model, const Exec& exec,
            std::span<const TextStart> starts, const GenerateOptions& options,
            GenerationListener* listener)
      : ctx_(ctx),
        model_(model),
        exec_(exec),
        starts_(starts),
        options_(options),
        listener_(listener),
        vocab_size_(model.config().vocab_size),
        drawable_(options.drawable_ids > 0 ? std::min(options.drawable_ids, vocab_size_)
                                           : vocab_size_),
        context_length_(options.context_length > 0 ? options.context_length
                                                   : model.config().max_position_embeddings) {
    ctx_.training = false;
    check_options();
    for (const TextStart& start : starts) texts_.push_back(start.prompt);
    running_.assign(starts.size(), options.max_new_tokens > 0);
    result_.texts.resize(starts.size());
    for (Continuation& text : result_.texts) {
      if (options.max_new_tokens == 0) text.ending = Ending::max_new_tokens;
    }
  }

  Generation run(const std::atomic<bool>* interrupted) {
    if (!any_running()) return std::move(result_);
    auto start = std::chrono::steady_clock::now();
    read_prompts();
    result_.times.prefill_seconds = seconds_since(start);
    start = std::chrono::steady_clock::now();
    for (int64_t place = 0; !(interrupted && *interrupted); ++place) {
      draw(place);
      if (place > 0) result_.times.decoded_tokens += drawn_;
      if (!any_running()) break;
      read_last_tokens();
    }
    result_.times.decode_seconds = seconds_since(start);
    return std::move(result_);
  }

 private:
  void check_options() const {
    validate(options_.sampling);
    check_input(options_.max_new_tokens >= 0, "max_new_tokens must be 0 or more; got ",
                options_.max_new_tokens);
    const int64_t most = model_.config().max_position_embeddings;
    check_input(context_length_ <= most, "context_length must be at most ", most,
                " (model.max_position_embeddings); got ", context_length_);
    for (const TextStart& start : starts_) {
      const int64_t length = static_cast<int64_t>(start.prompt.size());
      check_input(length > 0, "a prompt must hold at least one token");
      check_input(options_.slide || length <= context_length_, "a prompt of ", length,
                  " tokens is longer than the ", context_length_, " that the model can see");
      for (const int32_t id : start.prompt) {
        check_input(id >= 0 && id < vocab_size_, "a prompt's ids must lie in 0..", vocab_size_ - 1,
                    "; got ", id);
      }
    }
  }

  bool any_running() const {
    return std::find(running_.begin(), running_.end(), true) != running_.end();
  }
  int64_t count() const { return static_cast<int64_t>(texts_.size()); }
  bool fits_context(int64_t text) const {
    return static_cast<int64_t>(texts_[text].size()) <= context_length_;
  }

  // --- logits: row i of logits_ is text i's, [texts, V] ---

  void read_prompts() {
    logits_ = host_tensor(ctx_, {count(), vocab_size_}, Dtype::f64);
    int64_t longest = 0;
    for (const auto& text : texts_) {
      result_.times.prompt_tokens += static_cast<int64_t>(text.size());
      longest = std::max(longest, static_cast<int64_t>(text.size()));
    }
    if (!options_.cache || longest > context_length_) return read_windows(all_texts());
    // max_new_tokens may be as large as the user likes.
    const int64_t room = std::min(options_.max_new_tokens, context_length_ - longest);
    cache_.emplace(ctx_, model_.config(), count(), longest + room, exec_);
    decoder_.emplace(ctx_, model_, *cache_, exec_);
    const Tensor logits = model_.prefill(ctx_, *cache_, texts_, exec_);
    take_logits(logits, all_texts());
  }

  void read_last_tokens() {
    std::vector<int64_t> cached, windows;
    for (int64_t i = 0; i < count(); ++i) {
      const bool in_cache = cache_ && cache_->length(i) > 0;
      const bool can_stay = running_[i] && fits_context(i);
      if (in_cache && !can_stay) cache_->end_row(ctx_, i);
      if (running_[i]) (in_cache && can_stay ? cached : windows).push_back(i);
    }
    if (!cached.empty()) {
      std::vector<int32_t> tokens;
      for (const auto& text : texts_) tokens.push_back(text.back());
      take_logits(decoder_->decode(tokens), all_texts());
    }
    if (!windows.empty()) read_windows(windows);
  }

  // A pass over each text, or its last context_length tokens.
  void read_windows(const std::vector<int64_t>& which) {
    Rows rows;
    for (const int64_t i : which) {
      const auto& text = texts_[i];
      const int64_t length = std::min<int64_t>(text.size(), context_length_);
      rows.emplace_back(text.end() - length, text.end());
    }
    take_logits(model_.next_logits(ctx_, rows, exec_), which);
  }

  void take_logits(const Tensor& logits, const std::vector<int64_t>& which) {
    const Tensor values = cast(ctx_, logits, Dtype::f64);
    for (size_t row = 0; row < which.size(); ++row) {
      download(ctx_, values.slice(0, row, 1), logits_.slice(0, which[row], 1));
    }
    ctx_.queue->synchronize();
  }

  std::vector<int64_t> all_texts() const {
    std::vector<int64_t> all(texts_.size());
    for (int64_t i = 0; i < count(); ++i) all[i] = i;
    return all;
  }

  // --- tokens ---

  void draw(int64_t place) {
    drawn_ = 0;
    for (int64_t i = 0; i < count(); ++i) {
      if (!running_[i]) continue;
      const std::span<double> logits(logits_.mutable_data<double>() + i * vocab_size_, drawable_);
      add(i, draw_token(logits, texts_[i], options_.sampling, starts_[i].sample, place));
    }
  }

  void add(int64_t i, int32_t id) {
    ++drawn_;
    const auto& ends = options_.end_ids;
    if (std::find(ends.begin(), ends.end(), id) != ends.end()) return end(i, Ending::end_token);
    texts_[i].push_back(id);
    result_.texts[i].ids.push_back(id);
    ++result_.times.new_tokens;
    const bool goes_on = !listener_ || listener_->on_token(i, id);
    if (!goes_on) return end(i, Ending::stopped);
    if (static_cast<int64_t>(result_.texts[i].ids.size()) == options_.max_new_tokens) {
      return end(i, Ending::max_new_tokens);
    }
    if (!options_.slide && static_cast<int64_t>(texts_[i].size()) >= context_length_) {
      end(i, Ending::context_full);
    }
  }

  void end(int64_t i, Ending ending) {
    running_[i] = false;
    result_.texts[i].ending = ending;
    if (listener_) listener_->on_end(i, ending);
  }

  Context ctx_;
  TinyTransformer& model_;
  const Exec exec_;
  const std::span<const TextStart> starts_;
  const GenerateOptions& options_;
  GenerationListener* const listener_;
  const int64_t vocab_size_, drawable_, context_length_;

  Rows texts_;  // prompt and new tokens
  std::vector<bool> running_;
  std::optional<KvCache> cache_;
  std::optional<Decoder> decoder_;
  Tensor logits_;      // [texts, V] f64, in host memory
  int64_t drawn_ = 0;  // in the last round, ends included
  Generation result_;
};

}  // namespace

const char* name_of(Ending ending) {
  switch (ending) {
    case Ending::max_new_tokens:
      return "max_new_tokens";
    case Ending::end_token:
      return "end_token";
    case Ending::stopped:
      return "stopped";
    case Ending::context_full:
      return "context_full";
    case Ending::interrupted:
      return "interrupted";
  }
  fail("generate: unknown ending");
}

Generation generate(const Context& ctx, TinyTransformer& model, const Exec& exec,
                    std::span<const TextStart> starts, const GenerateOptions& options,
                    GenerationListener* listener, const std::atomic<bool>* interrupted) {
  return Generator(ctx, model, exec, starts, options, listener).run(interrupted);
}

}  // namespace xtrain
