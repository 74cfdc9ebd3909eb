#pragma once
// Trading time for memory: a block of ops recorded as one node that keeps only the block's inputs
// and runs the block again in backward. Random numbers are functions of their place, so the second
// run draws the same, and gradients have the same bits as without recompute.

#include <functional>
#include <vector>

#include "autodiff/tape.h"

namespace xtrain {

// Runs ops on the inputs, recording on the tape (null: only values). Parameters are reached by
// use(tape, parameter).
using Block = std::function<std::vector<Var>(Tape* tape, std::span<const Var> inputs)>;

// The block's outputs. `parameters` must list all that the block uses: the tape counts their uses
// before the block runs again. With no tape the block just runs.
std::vector<Var> recompute(Tape* tape, const Block& block, std::span<const Var> inputs,
                           std::span<Parameter* const> parameters);

}  // namespace xtrain
