#pragma once
// Checksums of files and weights: XXH3, 64 bits, as 16 hexadecimal digits.

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace xtrain {

class Checksum {
 public:
  Checksum();
  ~Checksum();
  void add(std::span<const std::byte> bytes);
  std::string hex() const;  // of everything added so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string checksum_of(std::span<const std::byte> bytes);

}  // namespace xtrain
