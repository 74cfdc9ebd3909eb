#pragma once
// Unicode normalization form C: one spelling for characters that can be written in several ways.

#include <string>
#include <string_view>

namespace xtrain {

// The text in form C; bytes that are not valid UTF-8 stay as they are.
std::string to_nfc(std::string_view text);

// No character of `text` can change under to_nfc. False may be answered for text in form C too.
bool surely_nfc(std::string_view text);

}  // namespace xtrain
