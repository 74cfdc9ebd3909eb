#include "train/checksum.h"

#include <xxhash.h>

#include <cstdio>

#include "core/error.h"

namespace xtrain {

struct Checksum::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

Checksum::Checksum() : state_(std::make_unique<State>()) {
  check(state_->xxh && XXH3_64bits_reset(state_->xxh) == XXH_OK, "checksum: out of memory");
}

Checksum::~Checksum() = default;

void Checksum::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_->xxh, bytes.data(), bytes.size());
}

std::string Checksum::hex() const {
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016llx",
                static_cast<unsigned long long>(XXH3_64bits_digest(state_->xxh)));
  return digits;
}

std::string checksum_of(std::span<const std::byte> bytes) {
  Checksum checksum;
  checksum.add(bytes);
  return checksum.hex();
}

}  // namespace xtrain
