#include "train/checkpoint.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/atomic_file.h"
#include "core/copy.h"
#include "core/error.h"
#include "core/json_values.h"
#include "core/mapped_file.h"
#include "model/hf/safetensors.h"
#include "train/checksum.h"

namespace xtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kMoments = "moments.safetensors";
constexpr const char* kState = "state.json";
constexpr const char* kManifest = "manifest.json";
constexpr const char* kFirst = "first_moment.";
constexpr const char* kSecond = "second_moment.";

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// --- writing -------------------------------------------------------------------------------------

std::vector<std::byte> bytes_of(const Context& ctx, const Tensor& x) {
  std::vector<std::byte> bytes(x.nbytes());
  copy_to_host(ctx, contiguous(ctx, x), bytes);
  return bytes;
}

std::vector<NamedTensor> weights_of(const ParameterSet& parameters, const Tensor& masters) {
  std::vector<NamedTensor> tensors;
  for (const Parameter& p : parameters.list()) {
    tensors.push_back({p.name, parameters.slice_of(masters, p)});
  }
  return tensors;
}

std::vector<NamedTensor> moments_of(const ParameterSet& parameters, const AdamWState& optimizer) {
  std::vector<NamedTensor> tensors;
  for (const Parameter& p : parameters.list()) {
    tensors.push_back({kFirst + p.name, parameters.slice_of(optimizer.first_moments, p)});
    tensors.push_back({kSecond + p.name, parameters.slice_of(optimizer.second_moments, p)});
  }
  return tensors;
}

const char* safetensors_dtype(Dtype dtype) {
  return dtype == Dtype::f64 ? "F64" : "F32";
}

void write_tensors(const Context& ctx, const std::string& path,
                   const std::vector<NamedTensor>& tensors) {
  std::vector<SafetensorsInfo> infos;
  for (const auto& [name, tensor] : tensors) {
    infos.push_back({name, safetensors_dtype(tensor.dtype()),
                     std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())});
  }
  SafetensorsWriter writer(path, std::move(infos));
  for (const auto& [name, tensor] : tensors) writer.write(name, bytes_of(ctx, tensor));
  writer.finish();
}

Json manifest_entry(const fs::path& path) {
  const MappedFile file(path.string());
  return {{"bytes", file.bytes().size()}, {"xxh3_64", checksum_of(file.bytes())}};
}

void write_manifest(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  Json files = Json::object();
  for (const std::string& name : names) files[name] = manifest_entry(folder / name);
  write_file((folder / kManifest).string(), Json{{"files", files}}.dump(2) + "\n");
}

// A folder that is gone when the scope is left, however it is left.
struct RemovedAtEnd {
  fs::path folder;
  ~RemovedAtEnd() {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
};

// Gives a finished folder its name. One that has the name already changes places with it, so that
// the name stands for a complete checkpoint at every moment.
void publish(const fs::path& finished, const fs::path& target) {
  // Not every file system knows RENAME_EXCHANGE or other flags; a first save needs none.
  const unsigned flags = fs::exists(target) ? RENAME_EXCHANGE : 0;
  const bool renamed = renameat2(AT_FDCWD, finished.c_str(), AT_FDCWD, target.c_str(), flags) == 0;
  check(renamed, "checkpoint: cannot rename ", finished.string(), " to ", target.string(), ": ",
        std::strerror(errno));
  sync_folder(target.parent_path().string());
}

// --- finding -------------------------------------------------------------------------------------

std::string step_name(int64_t step) {
  char name[32];
  std::snprintf(name, sizeof(name), "step_%08lld", static_cast<long long>(step));
  return name;
}

// The step that a folder's name says, or -1.
int64_t step_of(const std::string& name) {
  long long step = -1;
  int used = 0;
  const bool matches = std::sscanf(name.c_str(), "step_%lld%n", &step, &used) == 1;
  const bool exact = matches && step >= 0 && used == static_cast<int>(name.size());
  return exact && step_name(step) == name ? step : -1;
}

// Steps in the folder, newest first.
std::vector<int64_t> steps_in(const std::string& folder) {
  std::vector<int64_t> steps;
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  const bool is_known = status.type() != fs::file_type::none;
  if (is_known && !fs::is_directory(status)) return steps;
  fs::directory_iterator entries;
  if (is_known) entries = fs::directory_iterator(folder, error);
  check_input(!error, folder, ": cannot be looked into: ", error.message());
  for (const auto& entry : entries) {
    const int64_t step = step_of(entry.path().filename().string());
    if (step >= 0 && entry.is_directory(error)) steps.push_back(step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

// --- reading -------------------------------------------------------------------------------------

Json read_json(const fs::path& path) {
  const MappedFile file(path.string());
  Json json = Json::parse(shallow_json(file.text(), file.path()), nullptr, false);
  check_input(json.is_object(), "checkpoint: ", path.string(), " must be a JSON object");
  return json;
}

void read_tensor(const Context& ctx, const SafetensorsFile& file, const std::string& name,
                 Tensor target) {
  const SafetensorsEntry& entry = file.at(name);
  check_input(entry.dtype == safetensors_dtype(target.dtype()), "checkpoint: ", file.path(),
              " holds ", name, " as ", entry.dtype, "; the run needs ",
              safetensors_dtype(target.dtype()));
  const Shape shape{std::span<const int64_t>(entry.shape)};
  check_input(shape == target.shape(), "checkpoint: ", file.path(), " holds ", name, " with shape ",
              shape, "; the model needs ", target.shape());
  copy_from_host(ctx, entry.bytes, target);
}

void check_no_more_tensors(const SafetensorsFile& file, size_t expected) {
  check_input(file.entries().size() == expected, "checkpoint: ", file.path(), " holds ",
              file.entries().size(), " tensors; the model has ", expected);
}

int64_t count_in(const Json& json, const char* key, const fs::path& path) {
  check_input(json.contains(key) && json[key].is_number_integer() && json[key].get<int64_t>() >= 0,
              "checkpoint: ", path.string(), " must give ", key, " as a count");
  return json[key].get<int64_t>();
}

TrainingState read_state(const fs::path& path) {
  const Json json = read_json(path);
  TrainingState state;
  state.step = count_in(json, "step", path);
  state.sequences = count_in(json, "sequences", path);
  state.tokens = count_in(json, "tokens", path);
  state.seq_len = count_in(json, "seq_len", path);
  state.seed = static_cast<uint64_t>(count_in(json, "seed", path));
  return state;
}

}  // namespace

std::string checkpoint_path(const std::string& folder, int64_t step) {
  return (fs::path(folder) / step_name(step)).string();
}

std::string save_checkpoint(const Context& ctx, const std::string& folder,
                            const TrainingState& state, const ParameterSet& parameters,
                            const AdamWState& optimizer,
                            const std::map<std::string, std::string>& files) try {
  const fs::path target = checkpoint_path(folder, state.step);
  const fs::path partial = target.string() + ".partial";
  fs::remove_all(partial);
  const RemovedAtEnd whatever_is_left{partial};
  fs::create_directories(partial);
  write_tensors(ctx, (partial / kWeights).string(), weights_of(parameters, optimizer.masters));
  write_tensors(ctx, (partial / kMoments).string(), moments_of(parameters, optimizer));
  const Json json{{"step", state.step},
                  {"sequences", state.sequences},
                  {"tokens", state.tokens},
                  {"seq_len", state.seq_len},
                  {"seed", state.seed}};
  write_file((partial / kState).string(), json.dump(2) + "\n");
  for (const auto& [name, content] : files) write_file((partial / name).string(), content);
  write_manifest(partial);
  publish(partial, target);
  return target.string();
} catch (const fs::filesystem_error& error) {
  fail("checkpoint: ", error.what());
}

TrainingState load_checkpoint(const Context& ctx, const std::string& path,
                              const ParameterSet& parameters, const AdamWState& optimizer) {
  verify_checkpoint(path);
  const fs::path folder = path;
  const TrainingState state = read_state(folder / kState);
  const SafetensorsFile weights((folder / kWeights).string());
  const SafetensorsFile moments((folder / kMoments).string());
  check_no_more_tensors(weights, parameters.list().size());
  check_no_more_tensors(moments, 2 * parameters.list().size());
  for (const NamedTensor& t : weights_of(parameters, optimizer.masters)) {
    read_tensor(ctx, weights, t.name, t.tensor);
  }
  for (const NamedTensor& t : moments_of(parameters, optimizer)) {
    read_tensor(ctx, moments, t.name, t.tensor);
  }
  return state;
}

void verify_checkpoint(const std::string& path, CheckpointPart part) {
  const fs::path folder = path;
  const Json manifest = read_json(folder / kManifest);
  check_input(manifest.contains("files") && manifest["files"].is_object(),
              "checkpoint: ", (folder / kManifest).string(), " must list files");
  for (const auto& [name, expected] : manifest["files"].items()) {
    if (part == CheckpointPart::model && name == kMoments) continue;
    const Json found = manifest_entry(folder / name);
    check_input(found == expected, "checkpoint: ", (folder / name).string(), " is damaged: it is ",
                found.dump(), ", its manifest says ", expected.dump());
  }
  for (const char* name : {kWeights, kMoments, kState}) {
    check_input(manifest["files"].contains(name), "checkpoint: ", (folder / kManifest).string(),
                " does not list ", name);
  }
}

std::string newest_checkpoint(const std::string& folder, CheckpointPart part) {
  for (int64_t step : steps_in(folder)) {
    const std::string path = checkpoint_path(folder, step);
    try {
      verify_checkpoint(path, part);
      return path;
    } catch (const InputError&) {
      continue;  // damaged: an older one will do
    }
  }
  return "";
}

std::string model_path(const std::string& path) {
  const std::string checkpoints = (fs::path(path) / "checkpoints").string();
  std::error_code ignored;
  if (!fs::exists(fs::path(path) / kWeights, ignored) && has_checkpoints(checkpoints)) {
    const std::string newest = newest_checkpoint(checkpoints, CheckpointPart::model);
    check_input(!newest.empty(), "every checkpoint in ", checkpoints, " is damaged");
    return newest;
  }
  const bool is_checkpoint = fs::exists(fs::path(path) / kManifest, ignored) &&
                             fs::exists(fs::path(path) / kState, ignored);
  if (is_checkpoint) verify_checkpoint(path, CheckpointPart::model);
  return path;
}

bool has_checkpoints(const std::string& folder) {
  return !steps_in(folder).empty();
}

void remove_old_checkpoints(const std::string& folder, int64_t keep, int64_t last_step) {
  std::vector<int64_t> steps = steps_in(folder);
  std::erase_if(steps, [&](int64_t step) { return step > last_step; });
  for (size_t i = static_cast<size_t>(keep); keep > 0 && i < steps.size(); ++i) {
    fs::remove_all(checkpoint_path(folder, steps[i]));
  }
}

std::string weights_checksum(const Context& ctx, const ParameterSet& parameters,
                             const Tensor& masters) {
  std::vector<NamedTensor> tensors = weights_of(parameters, masters);
  std::sort(tensors.begin(), tensors.end(),
            [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
  Checksum checksum;
  for (const NamedTensor& t : tensors) {
    checksum.add(std::as_bytes(std::span(t.name)));
    checksum.add(bytes_of(ctx, t.tensor));
  }
  return checksum.hex();
}

}  // namespace xtrain
