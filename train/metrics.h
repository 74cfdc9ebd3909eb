#pragma once
// The files of a run beside its checkpoints: OUT_DIR/config.json, vocabulary.json, metrics.jsonl.

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

namespace xtrain {

struct StepReport;

struct BestValidation {
  double loss = 0.0;
  int64_t step = 0;
};

// metrics.jsonl: one JSON object a step with step, tokens, loss, val_loss (null where there was no
// validation), lr, grad_norm (null where it was not finite), step_ms and tokens_per_s. Each line is
// on its way to the disk when write() returns.
class Metrics {
 public:
  // Continues the file after the line of `last_step`: lines of later steps, which a run that was
  // killed after its last checkpoint has left, are dropped, and so is a line cut short.
  Metrics(const std::string& path, int64_t last_step);
  void write(const StepReport& report);
  // Of all lines, those of earlier runs that this one continues included.
  const std::optional<BestValidation>& best_validation() const { return best_; }

 private:
  std::string kept_lines(int64_t last_step);
  void count_validation(int64_t step, double loss);

  std::string path_;
  std::optional<BestValidation> best_;
  std::ofstream file_;
};

class RunFolder {
 public:
  // Creates the folder; Error when it cannot. InputError while another RunFolder, of any process,
  // has it, as far as the file system keeps locks: two runs would overwrite each other's files.
  explicit RunFolder(const std::string& path);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  void write(const std::string& name, const std::string& content) const;  // whole or not at all
  Metrics open_metrics(int64_t last_step) const;

 private:
  std::string path_;
  int lock_ = -1;  // a descriptor of the folder
};

}  // namespace xtrain
