#include "train/data/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "core/error.h"
#include "train/data/utf8.h"

namespace xtrain {
namespace {

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

}  // namespace

// The first character that can change is U+0300, whose first byte is 0xCC.
bool surely_nfc(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) >= 0xCC; });
}

std::string to_nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t valid = valid_utf8_length(text.substr(at));
    if (valid > 0) append_nfc(text.substr(at, valid), out);
    at += valid;
    if (at < text.size()) out += text[at++];
  }
  return out;
}

}  // namespace xtrain
