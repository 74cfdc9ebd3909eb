#include "core/cores.h"

#include <sched.h>

namespace xtrain {

std::vector<int> allowed_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return {0};
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &mask)) cores.push_back(core);
  }
  return cores;
}

void stay_on(const std::vector<int>& cores) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int core : cores) CPU_SET(core, &mask);
  sched_setaffinity(0, sizeof(mask), &mask);  // 0: the calling thread
}

}  // namespace xtrain
