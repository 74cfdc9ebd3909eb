#pragma once
// Which of cuBLASLt's algorithms each product takes, in a file. The library guesses a first choice;
// others are often a tenth faster, but which one it is takes a measurement, whose noise would give
// other algorithms, and so other bits, from run to run. Kept in a file the choice is made once.

#include <array>
#include <cstdint>
#include <map>
#include <string>

namespace xtrain {

struct GemmChoice {
  std::array<uint64_t, 8> algorithm{};                         // a cublasLtMatmulAlgo_t
  double microseconds = 0.0, first_choice_microseconds = 0.0;  // as measured
};

class GemmChoices {
 public:
  // No file: there are no choices and none are made.
  GemmChoices() = default;
  // Reads the file where there is one. InputError when it is not one of this class, or was made on
  // another machine: `machine` names the GPU and the library. With `measures`, products that it
  // lacks are to be measured and added.
  GemmChoices(std::string path, std::string machine, bool measures);

  const GemmChoice* find(const std::string& product) const;  // null when there is none
  bool measures() const { return measures_; }
  const std::string& path() const { return path_; }
  // Writes the file, whole.
  void add(const std::string& product, const GemmChoice& choice);

 private:
  void read();
  void write() const;

  std::string path_, machine_;
  bool measures_ = false;
  std::map<std::string, GemmChoice> choices_;
};

}  // namespace xtrain
