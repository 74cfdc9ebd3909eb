#include "train/data/nfc.h"

#include <utf8proc.h>

#include <bitset>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "core/error.h"
#include "train/data/utf8.h"

namespace xtrain {
namespace {

// No character beyond has a decomposition.
constexpr uint32_t kCharacters = 0x30000;
using Characters = std::bitset<kCharacters>;

// The code points of a character's form; the mapping must have room for all that there are.
size_t decompose(uint32_t character, utf8proc_int32_t (&out)[8]) {
  int boundary = 0;
  const auto count = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(character), out, 8,
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundary);
  check(count >= 0 && count <= 8, "normalization: ", utf8proc_errmsg(count));
  return static_cast<size_t>(count);
}

// Characters that can change, or change the one before: marks, those that form C spells otherwise,
// and those that join the one before. All others are in form C wherever they stand (Unicode
// Standard Annex 15, "Detecting normalization forms").
Characters find_unstable() {
  Characters unstable;
  for (uint32_t character = 0x300; character < kCharacters; ++character) {
    if (character >= 0xD800 && character < 0xE000) continue;  // surrogates
    const auto value = static_cast<utf8proc_int32_t>(character);
    if (utf8proc_get_property(value)->combining_class != 0) unstable[character] = true;
    utf8proc_int32_t parts[8];
    const size_t count = decompose(character, parts);
    if (count == 1 && parts[0] == value) continue;
    for (size_t i = 1; i < count; ++i) unstable[static_cast<uint32_t>(parts[i])] = true;
    const auto composed = utf8proc_normalize_utf32(
        parts, static_cast<utf8proc_ssize_t>(count),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (composed != 1 || parts[0] != value) unstable[character] = true;
  }
  return unstable;
}

// `character` is valid UTF-8.
bool is_stable(std::string_view character) {
  static const Characters kUnstable = find_unstable();
  if (static_cast<unsigned char>(character[0]) < 0xCC) return true;  // below U+0300
  const uint32_t value = utf8_code_point(character);
  return value < kCharacters && !kUnstable[value];
}

void append_nfc(std::string_view valid, std::string& out) {
  utf8proc_uint8_t* mapped = nullptr;
  const auto size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(valid.data()),
                   static_cast<utf8proc_ssize_t>(valid.size()), &mapped,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  check(size >= 0, "normalization: ", utf8proc_errmsg(size));
  out.append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
}

// The end of the stretch from `begin` on that can be brought into form C by itself: a stable
// character, if one stands there, and what is not stable behind it. `changes`: it may change.
size_t stretch_end(std::string_view text, size_t begin, bool& changes) {
  changes = false;
  size_t at = begin;
  while (at < text.size()) {
    const size_t length = utf8_character_length(text.substr(at));
    const bool stable = length == 0 || is_stable(text.substr(at, length));
    if (stable && at > begin) return at;
    if (length == 0) return at + 1;  // a byte that is no character
    changes = changes || !stable;
    at += length;
  }
  return at;
}

}  // namespace

bool surely_nfc(std::string_view text) {
  bool changes = false;
  for (size_t at = 0; at < text.size() && !changes;) {
    if (static_cast<unsigned char>(text[at]) < 0xCC) {
      ++at;
    } else {
      at = stretch_end(text, at, changes);
    }
  }
  return !changes;
}

std::string to_nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    bool changes = false;
    const size_t end = stretch_end(text, at, changes);
    const std::string_view stretch = text.substr(at, end - at);
    if (changes) {
      append_nfc(stretch, out);
    } else {
      out += stretch;
    }
    at = end;
  }
  return out;
}

}  // namespace xtrain
