#include "train/trainer.h"

#include <chrono>
#include <filesystem>

#include "core/error.h"
#include "core/mapped_file.h"
#include "train/metrics.h"
#include "train/sample.h"
#include "train/schedule.h"

namespace xtrain {
namespace {

namespace fs = std::filesystem;

// One bad batch is passed over; weights that are not finite make every gradient so.
constexpr int64_t kMostSkipped = 10;

constexpr const char* kConfig = "config.json";
constexpr const char* kVocabulary = "vocabulary.json";

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - start;
  return passed.count();
}

// A scalar tensor's value.
double scalar_value(const Context& ctx, const Tensor& x) {
  return x.dtype() == Dtype::f64 ? to_host<double>(ctx, x)[0]
                                 : static_cast<double>(to_host<float>(ctx, x)[0]);
}

double count_value(const Context& ctx, const Tensor& count) {
  return static_cast<double>(to_host<int64_t>(ctx, count)[0]);
}

}  // namespace

Trainer::Trainer(const Context& ctx, RunConfig run, Replica& replica)
    : ctx_(ctx), run_(std::move(run)), replica_(replica) {
  data_ = open_data(run_.data, run_.model.vocab_size);
  if (run_.model.vocab_size == 0) run_.model.vocab_size = data_.vocabulary->size();
  prompt_ = data_.vocabulary->encode(run_.train.prompt, "train.prompt");
  train_windows_.emplace(data_.train, run_.train.seq_len, run_.train.seed);
  if (data_.validation) val_windows_.emplace(data_.validation, run_.train.seq_len);
  micro_steps_ = micro_steps(run_.train, replica_.size());
  model_.emplace(ctx_, run_.model, run_.train.exec.dtype);
  replica_.attach(model_->parameters());
  const AdamWOptions options{run_.train.beta1, run_.train.beta2, run_.train.adam_eps,
                             run_.train.weight_decay};
  optimizer_.emplace(ctx_, model_->parameters(), options, replica_.owned());
  optimizer_->initialize(ctx_, run_.train.seed);
  state_.seed = run_.train.seed;
  state_.seq_len = run_.train.seq_len;
  ctx_.training = true;
  ctx_.random = RandomKey{run_.train.seed, &random_step_, &random_sequence_};
  resume_or_refuse();
}

void Trainer::check_out_dir_unused() const {
  const bool used =
      fs::exists(fs::path(run_.train.out_dir) / kConfig) || has_checkpoints(checkpoint_folder());
  check_input(!used, "train.out_dir ", run_.train.out_dir,
              " already holds a run; continue it with --resume auto, or choose another --out-dir");
}

// The shapes of the weights do not show RoPE's base, say, or the kind of an activation. Dropout may
// change in the middle of a run.
void Trainer::check_model_of(const std::string& checkpoint) const {
  const std::string path = (fs::path(checkpoint) / kConfig).string();
  ModelConfig saved = read_run_config(path).model;
  saved.embd_pdrop = run_.model.embd_pdrop;
  saved.resid_pdrop = run_.model.resid_pdrop;
  saved.attn_pdrop = run_.model.attn_pdrop;
  check_input(
      saved == run_.model, path,
      ": the resumed run's model must be the checkpoint's; compare their sections \"model\"");
}

// Other text may have as many characters and give them other ids.
void Trainer::check_vocabulary_of(const std::string& checkpoint) const {
  const MappedFile saved((fs::path(checkpoint) / kVocabulary).string());
  check_input(saved.text() == data_.vocabulary->to_json(), saved.path(),
              ": the resumed run's vocabulary must be that of the data; the data has another");
}

void Trainer::resume_or_refuse() {
  const std::string& resume = run_.train.resume;
  if (resume == "none") return check_out_dir_unused();
  const std::string newest = newest_checkpoint(checkpoint_folder());
  const std::string path = resume == "auto" ? newest : resume;
  if (path.empty()) {
    check_input(!has_checkpoints(checkpoint_folder()), "train.resume auto: every checkpoint in ",
                checkpoint_folder(), " is damaged; give a path, or start in another --out-dir");
    return;  // nothing to continue: a fresh run
  }
  state_ = load_checkpoint(ctx_, path, model_->parameters(), *optimizer_);
  check_input(state_.seed == run_.train.seed, "train.seed must be that of the resumed run, ",
              state_.seed, "; got ", run_.train.seed);
  check_input(state_.seq_len == run_.train.seq_len,
              "train.seq_len must be that of the resumed run, ", state_.seq_len, "; got ",
              run_.train.seq_len);
  check_input(state_.step <= run_.train.max_steps, "train.max_steps must be at least the ",
              state_.step, " steps that ", path, " has taken; got ", run_.train.max_steps);
  check_model_of(path);
  check_vocabulary_of(path);
  // What follows must not be mixed with another run, nor with later checkpoints of this one.
  if (newest.empty() || !fs::equivalent(path, newest)) check_out_dir_unused();
  resumed_from_ = path;
}

std::string Trainer::checkpoint_folder() const {
  return (fs::path(run_.train.out_dir) / "checkpoints").string();
}

std::string Trainer::weights_checksum() {
  return xtrain::weights_checksum(ctx_, model_->parameters(), *optimizer_);
}

// --- a step --------------------------------------------------------------------------------------

StepReport Trainer::train_step() {
  const auto start = std::chrono::steady_clock::now();
  const TrainConfig& c = run_.train;
  const LossSum loss = accumulate_gradients();
  replica_.finish_grads();
  model_->parameters().zero_missing_grads(ctx_);
  const double sum = replica_.sum(loss.sum), count = replica_.sum(loss.count);
  const ArenaRange owned = replica_.owned();
  const Tensor grads = model_->parameters().grads().slice(0, owned.begin, owned.end - owned.begin);
  const GradScale scale = grad_scale(replica_.sum(sum_of_squares(ctx_, grads)), count, c.grad_clip);

  StepReport report;
  report.step = ++state_.step;
  report.learning_rate = learning_rate_at(c, state_.step);
  report.grad_norm = scale.norm;
  report.skipped = !scale.finite;
  skipped_in_a_row_ = scale.finite ? 0 : skipped_in_a_row_ + 1;
  check(skipped_in_a_row_ < kMostSkipped, "training has diverged: the gradient of ", kMostSkipped,
        " steps in a row is not finite; use a smaller learning rate");
  if (scale.finite) {
    optimizer_->step(ctx_, state_.step, report.learning_rate, scale.factor);
    replica_.parameters_updated();
  }
  state_.tokens += static_cast<int64_t>(count);
  report.tokens = state_.tokens;
  report.loss = count > 0.0 ? sum / count : 0.0;
  report.step_ms = milliseconds_since(start);
  report.tokens_per_s = count / report.step_ms * 1000.0;
  return report;
}

// The summed gradients and losses of this replica's micro-steps.
Trainer::LossSum Trainer::accumulate_gradients() {
  model_->parameters().clear_grads();
  random_step_ = state_.step;
  LossSum total;
  for (int64_t micro = 0; micro < micro_steps_; ++micro) {
    const LossSum loss = micro_step(micro + 1 == micro_steps_);
    total.sum += loss.sum;
    total.count += loss.count;
  }
  return total;
}

// In every micro-step the replicas take neighbouring batches from the order of the run.
Trainer::LossSum Trainer::micro_step(bool last) {
  const int64_t B = run_.train.batch_size;
  random_sequence_ = state_.sequences + replica_.rank() * B;
  state_.sequences += replica_.size() * B;
  const Batch batch = train_windows_->batch(random_sequence_, B);
  Tape tape(ctx_);
  const Loss loss =
      model_->loss(ctx_, &tape, token_batch(ctx_, batch.inputs, batch.targets, B), run_.train.exec);
  const LossSum result{scalar_value(ctx_, loss.sum.value), count_value(ctx_, loss.count)};
  OnReady on_ready;
  if (last) on_ready = [this](Parameter& p) { replica_.grad_ready(p); };
  tape.backward(loss.sum, on_ready);
  return result;
}

std::optional<double> Trainer::validation_loss() {
  if (!val_windows_) return std::nullopt;
  Context ctx = ctx_;
  ctx.training = false;
  const int64_t B = run_.train.batch_size;
  const int64_t windows = std::min(val_windows_->size(), run_.train.eval_steps * B);
  LossSum total;
  for (int64_t first = 0; first < windows; first += B) {
    const Batch batch = val_windows_->batch(first, std::min(B, windows - first));
    const TokenBatch tokens = token_batch(ctx, batch.inputs, batch.targets, batch.batch_size);
    const Loss loss = model_->loss(ctx, nullptr, tokens, run_.train.exec);
    total.sum += scalar_value(ctx, loss.sum.value);
    total.count += count_value(ctx, loss.count);
  }
  return total.sum / total.count;
}

// --- the run -------------------------------------------------------------------------------------

bool Trainer::due(int64_t interval) const {
  if (state_.step == run_.train.max_steps) return true;
  return interval > 0 && state_.step % interval == 0;
}

void Trainer::run(TrainObserver& observer, const std::atomic<bool>& stop) {
  RunFolder folder(run_.train.out_dir);
  folder.write(kConfig, run_config_to_json(run_));
  folder.write(kVocabulary, data_.vocabulary->to_json());
  Metrics metrics = folder.open_metrics(state_.step);
  // Read once a step: a stop between two reads would end the run without its checkpoint.
  bool stopping = stop;
  while (state_.step < run_.train.max_steps && !stopping) {
    StepReport report = train_step();
    if (run_.train.eval_interval > 0 && due(run_.train.eval_interval)) {
      report.val_loss = validation_loss();
    }
    metrics.write(report);
    observer.on_step(report);
    stopping = stop;
    if (due(run_.train.checkpoint_interval) || stopping) observer.on_checkpoint(save());
  }
}

std::string Trainer::save() {
  const std::string path = save_checkpoint(
      ctx_, checkpoint_folder(), state_, model_->parameters(), *optimizer_,
      {{kConfig, run_config_to_json(run_)}, {kVocabulary, data_.vocabulary->to_json()}});
  remove_old_checkpoints(checkpoint_folder(), run_.train.keep_latest, state_.step);
  return path;
}

std::vector<std::string> Trainer::samples() {
  const TrainConfig& c = run_.train;
  SampleOptions options;
  options.max_new_tokens = c.max_new_tokens;
  options.temperature = c.temperature;
  options.top_k = c.top_k;
  options.seed = c.seed;
  options.context_length = c.seq_len;
  options.vocab_size = data_.vocabulary->size();
  const std::vector<int32_t> prompt = prompt_.empty() ? default_prompt() : prompt_;
  std::vector<std::string> texts;
  for (const auto& ids : sample(ctx_, *model_, c.exec, prompt, c.num_samples, options)) {
    texts.push_back(data_.vocabulary->decode(ids));
  }
  return texts;
}

// A run without a prompt begins its texts as the training tokens begin.
std::vector<int32_t> Trainer::default_prompt() const {
  std::vector<int32_t> first(1);
  data_.train->read(0, first);
  return first;
}

}  // namespace xtrain
