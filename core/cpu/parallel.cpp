#include "core/parallel.h"

#include <omp.h>

#include <vector>

#include "core/cores.h"

namespace xtrain {
namespace {

// What the process was given, before any thread was bound within it.
const std::vector<int>& inherited_cores() {
  static const std::vector<int> cores = allowed_cores();
  return cores;
}

}  // namespace

int thread_index() {
  return omp_get_thread_num();
}

int available_cores() {
  return static_cast<int>(inherited_cores().size());
}

void bind_threads(int threads) {
  const std::vector<int>& cores = inherited_cores();
  if (threads < 1 || threads > static_cast<int>(cores.size())) return;
#pragma omp parallel num_threads(threads)
  stay_on({cores[omp_get_thread_num()]});
}

void run_on_all_cores() {
  stay_on(inherited_cores());
}

}  // namespace xtrain
