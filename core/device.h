#pragma once
// Where a tensor's memory lies.

#include <cstdint>
#include <iosfwd>

namespace xtrain {

enum class DeviceType : uint8_t { cpu, cuda };

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;  // ordinal among the visible GPUs; 0 on the CPU

  bool is_cpu() const { return type == DeviceType::cpu; }
  bool is_cuda() const { return type == DeviceType::cuda; }
  bool operator==(const Device&) const = default;
};

std::ostream& operator<<(std::ostream& out, Device device);  // "cpu", "cuda:0"

}  // namespace xtrain
