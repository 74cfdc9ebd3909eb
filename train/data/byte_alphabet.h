#pragma once
// The printable spelling of bytes in the files of byte-level tokenizers: one character a byte. The
// printable bytes of Latin-1 stand for themselves; the other 68, in order, are U+0100, U+0101, ...
// (a space is U+0120). From Radford et al., 2019.

#include <optional>
#include <string>
#include <string_view>

namespace xtrain {

std::string spell_bytes(std::string_view bytes);

// The bytes that `spelling` stands for; nothing if it has a character that stands for no byte.
std::optional<std::string> bytes_of_spelling(std::string_view spelling);

}  // namespace xtrain
