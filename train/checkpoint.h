#pragma once
// Checkpoints: weights, moments and where training stands, by parameter name, so that any layout,
// batch or number of processes can load them.
//
//   FOLDER/step_00000300/model.safetensors     weights in full precision
//                        moments.safetensors   first_moment.NAME and second_moment.NAME
//                        state.json            see TrainingState
//                        config.json, ...      files given by the caller
//                        manifest.json         sizes and checksums of the others, written last
//
// A checkpoint is written in a folder of another name and renamed when all of it is on disk, so one
// that is found is complete unless something damaged it, which the checksums tell.

#include <map>
#include <string>
#include <vector>

#include "autodiff/parameter.h"
#include "train/adamw/adamw.h"

namespace xtrain {

struct TrainingState {
  int64_t step = 0;       // optimizer steps taken
  int64_t sequences = 0;  // taken from the training order, over all replicas: the next one's number
  int64_t tokens = 0;     // losses counted
  int64_t seq_len = 0;    // tokens of a sequence: with `sequences`, the position in tokens
  // Random numbers are functions of the seed, the step and the sequence; there is no other state.
  uint64_t seed = 0;

  bool operator==(const TrainingState&) const = default;
};

// FOLDER/step_00000300 for step 300.
std::string checkpoint_path(const std::string& folder, int64_t step);

// Writes FOLDER/step_%08d, replacing one of the same step, and returns its path. `files`: name to
// content. Throws Error and leaves what was there when something cannot be written.
std::string save_checkpoint(const Context& ctx, const std::string& folder,
                            const TrainingState& state, const ParameterSet& parameters,
                            const AdamWState& optimizer,
                            const std::map<std::string, std::string>& files);

// Reads all of a checkpoint into the optimizer's state, whose arenas must exist; AdamW::set_state
// must follow. Throws InputError naming the file when it is damaged or belongs to another model.
TrainingState load_checkpoint(const Context& ctx, const std::string& path,
                              const ParameterSet& parameters, const AdamWState& optimizer);

// What of a checkpoint is looked at: everything, or what a model consists of, which leaves out the
// moments.
enum class CheckpointPart : uint8_t { all, model };

// Throws InputError naming the file at fault unless the manifest and the files agree.
void verify_checkpoint(const std::string& path, CheckpointPart part = CheckpointPart::all);

// The newest step in the folder whose files agree with its manifest, or "" when there is none.
std::string newest_checkpoint(const std::string& folder, CheckpointPart part = CheckpointPart::all);

// The folder of a model (model/model_folder.h) that a user means: the path itself, or for a run's
// out-dir its newest undamaged checkpoint. InputError when all are damaged, and naming the file
// where the path is a checkpoint whose model is damaged.
std::string model_path(const std::string& path);

// Whether the folder holds anything named like a checkpoint, complete or not.
bool has_checkpoints(const std::string& folder);

// Of the checkpoints up to last_step removes all but the newest `keep`; 0 keeps all. Later ones, a
// damaged one that a resumed run passed over, say, do not count.
void remove_old_checkpoints(const std::string& folder, int64_t keep, int64_t last_step);

// A checksum of the weights in full precision, in the order of their names.
std::string weights_checksum(const Context& ctx, const ParameterSet& parameters,
                             const Tensor& masters);

}  // namespace xtrain
