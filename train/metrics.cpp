#include "train/metrics.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/atomic_file.h"
#include "core/error.h"
#include "train/trainer.h"

namespace xtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Json finite_or_null(double x) {
  return std::isfinite(x) ? Json(x) : Json(nullptr);
}

}  // namespace

Metrics::Metrics(const std::string& path, int64_t last_step) : path_(path) {
  write_file(path, kept_lines(last_step));
  file_.open(path, std::ios::app);
  check(file_.good(), "metrics: cannot write ", path);
}

// The whole lines up to the last step.
std::string Metrics::kept_lines(int64_t last_step) {
  std::ifstream file(path_);
  std::string kept, line;
  while (std::getline(file, line)) {
    const Json json = Json::parse(line, nullptr, false);
    const bool whole =
        json.is_object() && json.contains("step") && json["step"].is_number_integer();
    if (!whole || json["step"].get<int64_t>() > last_step) break;
    kept += line + "\n";
    if (json.contains("val_loss") && json["val_loss"].is_number()) {
      count_validation(json["step"].get<int64_t>(), json["val_loss"].get<double>());
    }
  }
  return kept;
}

void Metrics::count_validation(int64_t step, double loss) {
  if (std::isfinite(loss) && (!best_ || loss < best_->loss)) best_ = {loss, step};
}

void Metrics::write(const StepReport& r) {
  const Json json{{"step", r.step},
                  {"tokens", r.tokens},
                  {"loss", finite_or_null(r.loss)},
                  {"val_loss", r.val_loss ? finite_or_null(*r.val_loss) : Json(nullptr)},
                  {"lr", r.learning_rate},
                  {"grad_norm", finite_or_null(r.grad_norm)},
                  {"step_ms", r.step_ms},
                  {"tokens_per_s", r.tokens_per_s}};
  file_ << json.dump() << std::endl;
  check(file_.good(), "metrics: cannot write ", path_);
  if (r.val_loss) count_validation(r.step, *r.val_loss);
}

RunFolder::RunFolder(const std::string& path) : path_(path) {
  std::error_code error;
  fs::create_directories(path, error);
  check(!error, "out_dir: cannot create ", path, ": ", error.message());
  lock_ = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool taken = flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (taken) close(lock_);
  check_input(!taken, "train.out_dir ", path,
              " is in use by another run; choose another --out-dir");
}

RunFolder::~RunFolder() {
  close(lock_);
}

void RunFolder::write(const std::string& name, const std::string& content) const {
  write_file((fs::path(path_) / name).string(), content);
}

Metrics RunFolder::open_metrics(int64_t last_step) const {
  return Metrics((fs::path(path_) / "metrics.jsonl").string(), last_step);
}

}  // namespace xtrain
