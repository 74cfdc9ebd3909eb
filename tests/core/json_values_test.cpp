#include "core/json_values.h"

#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/rejection.h"

using namespace xtrain;
using Json = nlohmann::json;

TEST_CASE("excerpts of JSON are whole or cut between characters", "[json]") {
  CHECK(shortened("") == "");
  const std::string most(80, 'x');
  CHECK(shortened(most) == most);
  CHECK(shortened(most + "x") == std::string(77, 'x') + "...");
  for (const std::string character : {"\u00e9", "\u4eca", "\U0001F642"}) {
    for (size_t lead = 0; lead < 8; ++lead) {
      std::string text(lead, 'x');
      while (text.size() < 120) text += character;
      const std::string cut = shortened(text);
      CHECK(cut.size() <= 80);
      CHECK(cut.size() > 80 - character.size());
      CHECK((cut.size() - 3 - lead) % character.size() == 0);
      CHECK(text.starts_with(cut.substr(0, cut.size() - 3)));
    }
  }
  CHECK(excerpt(Json{{"a", {1, "\n\u00e9"}}}) == "{\"a\":[1,\"\\n\u00e9\"]}");
  CHECK(excerpt(Json("\xFF")) == "\"\uFFFD\"");
}

TEST_CASE("a member that is missing is null", "[json]") {
  const Json object{{"a", 1}, {"b", nullptr}};
  CHECK(member(object, "a") == 1);
  CHECK(member(object, "b").is_null());
  CHECK(member(object, "c").is_null());
}

TEST_CASE("JSON that is nested without end is refused before it is parsed", "[json]") {
  const auto why = [](const std::string& json) {
    return rejection([&] { shallow_json(json, "f.json"); });
  };
  const auto nested = [](size_t depth, const std::string& open, const std::string& close) {
    std::string json;
    for (size_t i = 0; i < depth; ++i) json += open;
    for (size_t i = 0; i < depth; ++i) json += close;
    return json;
  };
  const std::string refused = "f.json: is JSON nested more than 64 levels deep, at byte ";
  CHECK(why(nested(64, "[", "]")) == "accepted");
  CHECK(why(nested(65, "[", "]")) == refused + "65");
  CHECK(why(nested(64, "{\"a\":", "}")) == "accepted");
  CHECK(why(nested(65, "{\"a\":", "}")) == refused + std::to_string(64 * 5 + 1));
  CHECK(why(nested(1'000'000, "[", "")).starts_with(refused));
  // Side by side, or within text, they are no depth.
  std::string wide = "[";
  for (int i = 0; i < 100; ++i) wide += "[{}],";
  CHECK(why(wide + "0]") == "accepted");
  CHECK(why("\"" + std::string(100, '[') + "\"") == "accepted");
  CHECK(why("\"\\\"" + std::string(100, '[') + "\"") == "accepted");
  CHECK(why("\"\\\\\"" + std::string(100, '[')).starts_with(refused));
  CHECK(why("\"\\") == "accepted");
  CHECK(shallow_json("[1, 2]", "").size() == 6);
}
