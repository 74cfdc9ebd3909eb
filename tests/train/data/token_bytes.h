#pragma once
// Contents of small data files.

#include <cstdint>
#include <string>
#include <vector>

namespace xtrain {

// Values as they lie in memory, one after the other.
template <class T>
std::string packed(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// 0, 1, ..., count - 1, each modulo `modulus`.
template <class T>
std::vector<T> counting(int64_t count, int64_t modulus) {
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<T>(i % modulus));
  return values;
}

}  // namespace xtrain
