#pragma once
// JSON from files: what it takes before parsing, and values for messages and look-ups. Templates,
// so that no header of the JSON library is needed here.

#include <string>
#include <string_view>

namespace xtrain {

// Text that came from a file, for errors: cut where it is long, and never within a character.
std::string shortened(std::string text);

// The value as JSON in one line, shortened.
template <class Json>
std::string excerpt(const Json& value) {
  return shortened(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

// The JSON, to be parsed. What is parsed is copied, compared and written by recursion: InputError,
// beginning with `where`, where more than 64 lists and objects lie in one another.
std::string_view shallow_json(std::string_view json, const std::string& where);

// The member of an object, or null where there is none.
template <class Json>
const Json& member(const Json& object, const char* key) {
  static const Json kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

}  // namespace xtrain
