#include "core/json_values.h"

#include "core/error.h"

namespace xtrain {

std::string shortened(std::string text) {
  constexpr size_t kMost = 80;
  if (text.size() <= kMost) return text;
  size_t end = kMost - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  text.resize(end);
  return text + "...";
}

std::string_view shallow_json(std::string_view json, const std::string& where) {
  constexpr int kDeepest = 64;
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == '[' || c == '{')) {
      check_input(++depth <= kDeepest, where, ": is JSON nested more than ", kDeepest,
                  " levels deep, at byte ", i + 1);
    } else if (!quoted && (c == ']' || c == '}')) {
      --depth;
    }
  }
  return json;
}

}  // namespace xtrain
