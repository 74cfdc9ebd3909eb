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

// 1,024 bytes: magic, version and count of llm.c's files.
inline std::string header(int32_t magic, int32_t version, int32_t count) {
  std::vector<int32_t> words(256);
  words[0] = magic;
  words[1] = version;
  words[2] = count;
  return packed(words);
}

// The header of a llmq file. Its writer fills what it does not know with asterisks.
inline std::string llmq_header(std::vector<int32_t> fields) {
  std::string bytes(1023, '*');
  bytes += '\n';
  bytes.replace(0, 8, "BIN.TOK\n");
  return bytes.replace(8, 4 * fields.size(), packed(fields));
}

// One bit each, the lowest of a byte first.
inline std::string packed_bits(const std::vector<bool>& bits) {
  std::string bytes((bits.size() + 7) / 8, '\0');
  for (size_t i = 0; i < bits.size(); ++i) {
    if (bits[i]) bytes[i / 8] = static_cast<char>(bytes[i / 8] | 1 << i % 8);
  }
  return bytes;
}

// 0, 1, ..., count - 1, each modulo `modulus`.
template <class T>
std::vector<T> counting(int64_t count, int64_t modulus) {
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<T>(i % modulus));
  return values;
}

}  // namespace xtrain
