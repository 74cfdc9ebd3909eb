#pragma once
// Which cores of a host a rank computes on.

#include <string>
#include <vector>

namespace xtrain {

// The part of the cores for process `index` of `count` that have the same ones: neighbouring cores,
// and none twice unless there are fewer cores than processes.
std::vector<int> share_of(const std::vector<int>& cores, int index, int count);

// As people write it: "0-3,8".
std::string core_list(const std::vector<int>& cores);

std::string host_name();

}  // namespace xtrain
