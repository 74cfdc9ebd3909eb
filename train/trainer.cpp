#include "train/trainer.h"

#include <algorithm>
#include <filesystem>

#include "core/copy.h"
#include "core/error.h"
#include "core/mapped_file.h"
#include "model/model_folder.h"
#include "train/clip.h"
#include "train/data/model_vocabulary.h"
#include "train/generate/generator.h"
#include "train/schedule.h"

namespace xtrain {
namespace {

namespace fs = std::filesystem;

// One bad batch is passed over; weights that are not finite make every gradient so.
constexpr int64_t kMostSkipped = 10;

constexpr const char* kConfig = "config.json";
constexpr const char* kVocabulary = "vocabulary.json";

// Elements of totals: the sum of the losses and their count, those of every pass's loss; the
// gradient's sum of squares; how many replicas are to stop.
constexpr int64_t kLossSum = 0, kCount = 1, kSquares = 2, kStop = 3, kTotals = 4;

Tensor element(const Tensor& x, int64_t i) {
  return x.slice(0, i, 1);
}

// Sets, or adds to, the sum of the losses and their count.
void add_loss(const Context& ctx, const Loss& loss, bool first, const Tensor& totals) {
  const Tensor count = cast(ctx, loss.count, Dtype::f64);
  const auto add = first ? copy : add_into;
  add(ctx, loss.sum.value, element(totals, kLossSum));
  add(ctx, count, element(totals, kCount));
}

// Ids mean what they mean to the model that the run starts from, where that has a vocabulary.
Data open_run_data(const RunConfig& run) {
  std::optional<ModelVocabulary> of_model;
  if (!run.train.init.empty()) {
    of_model = model_vocabulary(run.train.init, run.model.vocab_size);
  }
  const bool known = of_model && !of_model->file.empty();
  return open_data(run.data, run.model.vocab_size, known ? &of_model->vocabulary : nullptr);
}

}  // namespace

Trainer::Trainer(const Context& ctx, RunConfig run, Replica& replica)
    : Trainer(ctx, run, open_run_data(run), replica) {}

Trainer::Trainer(const Context& ctx, RunConfig run, Data data, Replica& replica)
    : ctx_(ctx), run_(std::move(run)), replica_(replica), data_(std::move(data)) {
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
  resume_or_refuse();
  if (resumed_from_.empty() && !run_.train.init.empty()) load_initial_weights();
  check_same_start();
  allocate_step_memory();
  ctx_.training = true;
  const int64_t* random = random_.data<int64_t>();
  ctx_.random = RandomKey{run_.train.seed, random, random + 1};
  // In every micro-step the replicas take neighbouring batches from the order of the run.
  const int64_t B = run_.train.batch_size;
  loader_.emplace(ctx_, *train_windows_, state_.sequences + replica_.rank() * B, B,
                  replica_.size() * B);
  if (run_.train.recorded && replica_.recordable() != Recordable::nothing &&
      ctx_.queue->records()) {
    recorder_.emplace(ctx_);
  }
}

// Copies may still be under way from and to the host memory that is let go.
Trainer::~Trainer() {
  try {
    ctx_.queue->synchronize();
  } catch (const Error&) {  // whoever waited for the step has had it
  }
}

// Masters are read in full precision, whatever the dtype of the computation.
void Trainer::load_initial_weights() {
  const ModelFolder folder(run_.train.init);
  folder.check_tied_head();
  const AdamWState optimizer = optimizer_->state(ctx_);
  for (const Parameter& p : model_->parameters().list()) {
    folder.load(ctx_, p.name, model_->parameters().slice_of(optimizer.masters, p));
  }
  optimizer_->set_state(ctx_, optimizer);
}

void Trainer::allocate_step_memory() {
  const int64_t scalars = static_cast<int64_t>(optimizer_->step_scalars(1, 0.0).size());
  tokens_ = empty(ctx_, {2, run_.train.batch_size, run_.train.seq_len}, Dtype::i32);
  random_ = zeros(ctx_, {2}, Dtype::i64);
  scalars_ = empty(ctx_, {scalars}, Dtype::f64);
  totals_ = empty(ctx_, {kTotals}, Dtype::f64);
  scale_ = empty(ctx_, {kGradScaleFields}, Dtype::f64);
  for (StepUnderWay& step : under_way_) {
    step.random_step = host_tensor(ctx_, {1}, Dtype::i64);
    step.scalars = host_tensor(ctx_, {scalars}, Dtype::f64);
    step.stop = host_tensor(ctx_, {1}, Dtype::f64);
    step.totals = host_tensor(ctx_, {kTotals}, Dtype::f64);
    step.scale = host_tensor(ctx_, {kGradScaleFields}, Dtype::f64);
  }
}

void Trainer::check_out_dir_unused() const {
  std::error_code ignored;
  const bool used = fs::exists(fs::path(run_.train.out_dir) / kConfig, ignored) ||
                    has_checkpoints(checkpoint_folder());
  check_input(!used, "train.out_dir ", run_.train.out_dir,
              " already holds a run; continue it with --resume auto, or choose another --out-dir");
}

// The shapes of the weights do not show RoPE's base, say, or the kind of an activation. Dropout may
// change in the middle of a run.
void Trainer::check_model_of(const std::string& checkpoint) const {
  const std::string path = (fs::path(checkpoint) / kConfig).string();
  ModelConfig saved = ModelFolder(checkpoint).config();
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
  const AdamWState optimizer = optimizer_->state(ctx_);
  state_ = load_checkpoint(ctx_, path, model_->parameters(), optimizer);
  optimizer_->set_state(ctx_, optimizer);
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

// Each replica has looked for itself, perhaps on another disk. None goes on, and writes where
// others still look, before all have come here.
void Trainer::check_same_start() {
  const double step = static_cast<double>(state_.step);
  const Tensor sum = from_host(ctx_, std::vector<double>{step}, {1});
  replica_.sum(ctx_, sum);
  check_input(to_host<double>(ctx_, sum)[0] == replica_.size() * step,
              "train.resume: all replicas must continue from the same step; replica ",
              replica_.rank(), " is at step ", state_.step, " and another is not; is ",
              checkpoint_folder(), " the same folder on all hosts?");
}

std::string Trainer::checkpoint_folder() const {
  return (fs::path(run_.train.out_dir) / "checkpoints").string();
}

// What reads the values' arena as a whole waits as if it used each of them.
void Trainer::await_values() {
  for (const Parameter& p : model_->parameters().list()) {
    if (p.before_use) p.before_use();
  }
}

std::string Trainer::weights_checksum() {
  await_values();
  const Tensor masters = optimizer_->masters(ctx_);
  replica_.gather(masters);
  return xtrain::weights_checksum(ctx_, model_->parameters(), masters);
}

// --- a step --------------------------------------------------------------------------------------

StepReport Trainer::train_step() {
  const std::atomic<bool> never{false};
  return finish_step(begin_step(never));
}

void Trainer::take_steps(int64_t count, TrainObserver& observer) {
  const std::atomic<bool> never{false};
  const StepUnderWay* unreported = nullptr;
  for (; count > 0; --count) {
    const StepUnderWay& step = begin_step(never);
    if (unreported) observer.on_step(finish_step(*unreported));
    unreported = &step;
    if (ctx_.device.is_cuda()) continue;  // goes on while the host looks at the step before
    observer.on_step(finish_step(step));
    unreported = nullptr;
  }
  if (unreported) observer.on_step(finish_step(*unreported));
}

// Gives the device one step. Nothing here waits for it.
Trainer::StepUnderWay& Trainer::begin_step(const std::atomic<bool>& stop) {
  StepUnderWay& step = under_way_[state_.step % under_way_.size()];
  step.start = std::chrono::steady_clock::now();
  step.random_step.mutable_data<int64_t>()[0] = state_.step;
  step.step = ++state_.step;
  step.learning_rate = learning_rate_at(run_.train, step.step);
  const auto scalars = optimizer_->step_scalars(step.step, step.learning_rate);
  std::copy(scalars.begin(), scalars.end(), step.scalars.mutable_data<double>());
  upload(ctx_, step.random_step, element(random_, 0));
  upload(ctx_, step.scalars, scalars_);
  step.stop.mutable_data<double>()[0] = stop;
  upload(ctx_, step.stop, element(totals_, kStop));
  model_->parameters().clear_grads();
  for (int64_t i = 0; i < micro_steps_; ++i) {
    loader_->upload_next(ctx_, tokens_, element(random_, 1));
    state_.sequences += replica_.size() * run_.train.batch_size;
    run_micro_step(i == 0, i + 1 == micro_steps_);
  }
  download(ctx_, totals_, step.totals);
  download(ctx_, scale_, step.scale);
  step.done = ctx_.queue->record();
  return step;
}

// With the batch in tokens_; the last one of a step ends in the update.
void Trainer::run_micro_step(bool first, bool last) {
  const bool updates = last && replica_.recordable() == Recordable::step;
  const auto work = [=, this](const Context& ctx) {
    add_gradients(ctx, first, last);
    if (updates) update(ctx);
  };
  if (recorder_) {
    await_values();
    recorder_->run(2 * first + last, [=, this] { work(recorder_->context()); });
  } else {
    work(ctx_);
  }
  if (last && !updates) update(ctx_);
}

void Trainer::add_gradients(const Context& ctx, bool first, bool last) {
  const Shape rows{run_.train.batch_size, run_.train.seq_len};
  const TokenBatch batch{element(tokens_, 0).reshape(rows), element(tokens_, 1).reshape(rows)};
  Tape tape(ctx);
  const Loss loss = model_->loss(ctx, &tape, batch, run_.train.exec);
  add_loss(ctx, loss, first, totals_);
  OnReady on_ready;
  if (last) on_ready = [this](Parameter& p) { replica_.grad_ready(p); };
  tape.backward(loss.sum, on_ready);
  if (last) model_->parameters().zero_missing_grads(ctx);
}

void Trainer::update(const Context& ctx) {
  // Recorded work has written all of them, and left no marks of it on the host.
  for (Parameter& p : model_->parameters().list()) p.has_grad = true;
  replica_.finish_grads();
  sum_squares(ctx);
  replica_.sum(ctx, totals_);
  const Tensor scale =
      grad_scale(ctx, element(totals_, kSquares), element(totals_, kCount), run_.train.grad_clip);
  optimizer_->step(ctx, scalars_, scale, [this](ArenaRange range) { replica_.updated(range); });
  copy(ctx, scale, scale_);
}

void Trainer::sum_squares(const Context& ctx) {
  const Tensor& grads = model_->parameters().grads();
  const Tensor squares = element(totals_, kSquares);
  bool first = true;
  for (const ArenaRange range : replica_.share()) {
    const auto add = first ? copy : add_into;
    add(ctx, sum_of_squares(ctx, grads.slice(0, range.begin, range.end - range.begin)), squares);
    first = false;
  }
  if (first) fill(ctx, squares, 0.0);
}

// Waits for the step and says how it went.
StepReport Trainer::finish_step(const StepUnderWay& step) {
  step.done->wait();
  replica_.check_others();
  const GradScale scale = read_grad_scale(step.scale);
  const bool finite = scale.finite != 0.0;
  skipped_in_a_row_ = finite ? 0 : skipped_in_a_row_ + 1;
  check(skipped_in_a_row_ < kMostSkipped, "training has diverged: the gradient of ", kMostSkipped,
        " steps in a row is not finite; use a smaller learning rate");
  state_.tokens += static_cast<int64_t>(scale.count);

  StepReport report;
  report.step = step.step;
  report.tokens = state_.tokens;
  report.loss = scale.count > 0.0 ? step.totals.data<double>()[kLossSum] / scale.count : 0.0;
  report.learning_rate = step.learning_rate;
  report.grad_norm = scale.norm;
  report.skipped = !finite;
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::duration<double, std::milli> passed = now - std::max(step.start, last_finish_);
  last_finish_ = now;
  report.step_ms = passed.count();
  report.tokens_per_s = scale.count / report.step_ms * 1000.0;
  return report;
}

std::optional<double> Trainer::validation_loss() {
  if (!val_windows_) return std::nullopt;
  Context ctx = ctx_;
  ctx.training = false;
  const int64_t B = run_.train.batch_size, stride = replica_.size() * B;
  const int64_t all = val_windows_->size(), limit = run_.train.eval_steps * stride;
  const int64_t windows = limit > 0 ? std::min(all, limit) : all;
  const Tensor totals = zeros(ctx, {kCount + 1}, Dtype::f64);
  // Replicas take neighbouring batches as in training. A replica may have none.
  for (int64_t first = replica_.rank() * B; first < windows; first += stride) {
    const Batch batch = val_windows_->batch(first, std::min(B, windows - first));
    const TokenBatch tokens = token_batch(ctx, batch.inputs, batch.targets, batch.batch_size);
    add_loss(ctx, model_->loss(ctx, nullptr, tokens, run_.train.exec), false, totals);
  }
  replica_.sum(ctx, totals);
  const std::vector<double> sums = to_host<double>(ctx, totals);
  if (sums[kCount] == 0.0) return std::nullopt;
  return sums[kLossSum] / sums[kCount];
}

// --- the run -------------------------------------------------------------------------------------

bool Trainer::due(int64_t interval) const {
  if (state_.step == run_.train.max_steps) return true;
  return interval > 0 && state_.step % interval == 0;
}

void Trainer::run(TrainObserver& observer, const std::atomic<bool>& stop) {
  std::optional<RunFolder> folder;
  std::optional<Metrics> metrics;
  if (writes()) {
    folder.emplace(run_.train.out_dir);
    folder->write(kConfig, run_config_to_json(run_));
    folder->write(kVocabulary, data_.vocabulary->to_json());
    metrics.emplace(folder->open_metrics(state_.step));
  }
  const auto tell = [&](const StepReport& report) {
    if (metrics) {
      metrics->write(report);
      best_validation_ = metrics->best_validation();
    }
    observer.on_step(report);
  };

  const bool runs_ahead = ctx_.device.is_cuda();  // the CPU has done a step when it has begun it
  const StepUnderWay* unreported = nullptr;
  bool stopping = false;
  // All replicas see a stop in the sums of the same step, and so go the same way here.
  const auto finish = [&](const StepUnderWay& step) {
    StepReport report = finish_step(step);
    stopping = stopping || step.totals.data<double>()[kStop] > 0.0;
    return report;
  };
  while (state_.step < run_.train.max_steps && !stopping) {
    const StepUnderWay& step = begin_step(stop);
    if (unreported) tell(finish(*unreported));
    unreported = &step;
    const bool validate = run_.train.eval_interval > 0 && due(run_.train.eval_interval);
    const bool save_now = due(run_.train.checkpoint_interval);
    if (runs_ahead && !validate && !save_now && !stopping) continue;
    StepReport report = finish(step);
    unreported = nullptr;
    if (validate) report.val_loss = validation_loss();
    tell(report);
    if (save_now || stopping) observer.on_checkpoint(save());
  }
}

std::string Trainer::save() {
  await_values();
  const AdamWState optimizer = optimizer_->state(ctx_);
  for (const Tensor& arena :
       {optimizer.masters, optimizer.first_moments, optimizer.second_moments}) {
    replica_.gather(arena);
  }
  if (!writes()) return checkpoint_path(checkpoint_folder(), state_.step);
  const std::string path = save_checkpoint(
      ctx_, checkpoint_folder(), state_, model_->parameters(), optimizer,
      {{kConfig, run_config_to_json(run_)}, {kVocabulary, data_.vocabulary->to_json()}});
  remove_old_checkpoints(checkpoint_folder(), run_.train.keep_latest, state_.step);
  return path;
}

std::vector<std::string> Trainer::samples() {
  const TrainConfig& c = run_.train;
  GenerateOptions options;
  options.sampling.temperature = c.temperature;
  options.sampling.top_k = c.top_k;
  options.sampling.seed = c.seed;
  options.max_new_tokens = c.max_new_tokens;
  options.drawable_ids = data_.vocabulary->size();
  options.context_length = c.seq_len;
  options.slide = true;
  std::vector<TextStart> starts;
  for (int64_t i = 0; i < c.num_samples; ++i) {
    starts.push_back({prompt_.empty() ? default_prompt() : prompt_, static_cast<uint64_t>(i)});
  }
  const Generation generation = generate(ctx_, *model_, c.exec, starts, options);
  std::vector<std::string> texts;
  for (size_t i = 0; i < starts.size(); ++i) {
    std::vector<int32_t> ids = starts[i].prompt;
    const std::vector<int32_t>& added = generation.texts[i].ids;
    ids.insert(ids.end(), added.begin(), added.end());
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
