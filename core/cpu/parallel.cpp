#include "core/parallel.h"

#include <omp.h>
#include <sched.h>

#include <vector>

#include "core/error.h"

namespace xtrain {
namespace {

std::vector<int> cores_in_mask() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return {0};
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &mask)) cores.push_back(core);
  }
  return cores;
}

// What the process was given, before any thread was bound within it.
const std::vector<int>& inherited_cores() {
  static const std::vector<int> cores = cores_in_mask();
  return cores;
}

}  // namespace

int available_cores() {
  return static_cast<int>(inherited_cores().size());
}

void bind_threads(int threads) {
  const std::vector<int>& cores = inherited_cores();
  if (threads < 1 || threads > static_cast<int>(cores.size())) return;
#pragma omp parallel num_threads(threads)
  {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(cores[omp_get_thread_num()], &mask);
    sched_setaffinity(0, sizeof(mask), &mask);  // 0: the calling thread; refusal costs only speed
  }
}

}  // namespace xtrain
