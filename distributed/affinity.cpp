#include "distributed/affinity.h"

#include <unistd.h>

#include <cstdint>

namespace xtrain {

std::vector<int> share_of(const std::vector<int>& cores, int index, int count) {
  const int all = static_cast<int>(cores.size());
  if (all < count) return {cores[static_cast<size_t>(index % all)]};
  const auto border = [&](int i) { return cores.begin() + int64_t{all} * i / count; };
  return {border(index), border(index + 1)};
}

std::string core_list(const std::vector<int>& cores) {
  std::string list;
  for (size_t i = 0; i < cores.size();) {
    size_t last = i;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    if (!list.empty()) list += ",";
    list += std::to_string(cores[i]);
    if (last > i) list += "-" + std::to_string(cores[last]);
    i = last + 1;
  }
  return list;
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace xtrain
