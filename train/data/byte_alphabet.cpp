#include "train/data/byte_alphabet.h"

#include <array>
#include <cstdint>

namespace xtrain {
namespace {

struct Alphabet {
  std::array<uint16_t, 256> character_of_byte{};
  std::array<int16_t, 0x144> byte_of_character{};
};

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (auto& byte : alphabet.byte_of_character) byte = -1;
  uint16_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const uint16_t character = stands_for_itself(byte) ? static_cast<uint16_t>(byte) : next++;
    alphabet.character_of_byte[static_cast<size_t>(byte)] = character;
    alphabet.byte_of_character[character] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

std::string spell_bytes(std::string_view bytes) {
  std::string spelling;
  for (const char c : bytes) {
    const unsigned character = kAlphabet.character_of_byte[static_cast<unsigned char>(c)];
    if (character < 0x80) {
      spelling += static_cast<char>(character);
    } else {
      spelling += static_cast<char>(0xC0u | (character >> 6));
      spelling += static_cast<char>(0x80u | (character & 0x3Fu));
    }
  }
  return spelling;
}

std::optional<std::string> bytes_of_spelling(std::string_view spelling) {
  std::string bytes;
  for (size_t i = 0; i < spelling.size(); ++i) {
    size_t character = static_cast<unsigned char>(spelling[i]);
    if (character >= 0x80) {
      if ((character & 0xE0u) != 0xC0u || i + 1 == spelling.size()) return std::nullopt;
      character = ((character & 0x1Fu) << 6) | (static_cast<unsigned char>(spelling[++i]) & 0x3Fu);
    }
    if (character >= kAlphabet.byte_of_character.size()) return std::nullopt;
    const int16_t byte = kAlphabet.byte_of_character[character];
    if (byte < 0) return std::nullopt;
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

}  // namespace xtrain
