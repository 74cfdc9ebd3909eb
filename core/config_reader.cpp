#include "core/config_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/json_values.h"

namespace xtrain {

using Json = nlohmann::ordered_json;

struct ConfigReader::Entry {
  std::string section;
  std::optional<std::string> key;  // none: the entry is the section itself
  Json value;
  bool is_text = false;  // value is a string still to be read according to the key's type
};

namespace {

constexpr size_t kMaxFileBytes = size_t{16} << 20;
constexpr int kMaxDepth = 16;  // a config needs 3; more would only cost memory

// ---- JSON text ----

// Reads bytes and leaves in *consumed how many, since nlohmann/json tells no position of a key.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, size_t* consumed) : at_(at), consumed_(consumed) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    ++*consumed_;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  size_t* consumed_;
};

// "origin:line:column" of the last of `consumed` bytes, counted from 1.
std::string place(const std::string& origin, std::string_view json, size_t consumed) {
  const std::string_view before = json.substr(0, consumed == 0 ? 0 : consumed - 1);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  return text(origin, ":", line, ":", before.size() - line_start + 1);
}

// What nlohmann/json says, without its own error number and position.
std::string plain_reason(const Json::exception& error) {
  std::string what = error.what();
  for (const char* start : {"syntax error", "number overflow"}) {
    const size_t at = what.find(start);
    if (at != std::string::npos) return what.substr(at);
  }
  return what;
}

std::string_view without_byte_order_mark(std::string_view text) {
  return text.starts_with("\xEF\xBB\xBF") ? text.substr(3) : text;
}

Json parse_json(std::string_view json, const std::string& origin) {
  json = without_byte_order_mark(json);
  check_input(json.find_first_not_of(" \t\r\n") != std::string_view::npos, origin,
              ": must hold a JSON object of sections; got an empty file");
  size_t consumed = 0;
  std::vector<std::set<std::string>> open_objects;
  const auto on_event = [&](int depth, Json::parse_event_t event, Json& parsed) {
    check_input(depth <= kMaxDepth, place(origin, json, consumed), ": nested deeper than ",
                kMaxDepth, " levels");
    if (event == Json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == Json::parse_event_t::object_end) open_objects.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      check_input(open_objects.back().insert(key).second, place(origin, json, consumed), ": key \"",
                  key, "\" is given twice");
    }
    return true;
  };
  try {
    return Json::parse(CountingIterator(json.data(), &consumed),
                       CountingIterator(json.data() + json.size(), &consumed), on_event);
  } catch (const Json::exception& error) {
    reject_input(place(origin, json, consumed), ": not valid JSON: ", plain_reason(error));
  }
}

std::string read_file(const std::string& path) {
  std::error_code ignored;
  check_input(!std::filesystem::is_directory(path, ignored), path,
              ": must be a config file; got a directory");
  std::ifstream file(path, std::ios::binary);
  if (!file) reject_input(path, ": cannot open the config file: ", std::strerror(errno));
  std::string content;
  std::vector<char> chunk(size_t{64} << 10);
  while (file && content.size() <= kMaxFileBytes) {
    file.read(chunk.data(), static_cast<std::streamsize>(chunk.size()));
    content.append(chunk.data(), static_cast<size_t>(file.gcount()));
  }
  check_input(!file.bad(), path, ": cannot read the config file");
  check_input(content.size() <= kMaxFileBytes, path, ": must be a config of at most ",
              kMaxFileBytes, " bytes; the file is longer");
  return content;
}

// Json of a text that is a value of one of the scalar types; a JSON string of it if it is none.
Json json_of_text(const std::string& value) {
  const Json parsed = Json::parse(value, nullptr, false);
  return parsed.is_discarded() ? Json(value) : parsed;
}

bool is_utf8(const std::string& value) {
  try {
    (void)Json(value).dump();
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

std::string shown(const Json& value) {
  if (value.is_array()) return value.empty() ? "[]" : "an array";
  if (value.is_object()) return "an object";
  return excerpt(value);
}

// ---- One field ----

// Each returns whether the value was of the right type and range, and assigns it only then.
struct Assign {
  const Json& value;

  template <class T>
  bool operator()(const ConfigField::Integer<T>& target) const {
    // Integers beyond int64 come as unsigned or as floating point, and are out of range anyway.
    if (!value.is_number_integer()) return false;
    if (value.is_number_unsigned() && !std::in_range<int64_t>(value.get<uint64_t>())) return false;
    const int64_t number = value.get<int64_t>();
    if (!in_range(number, target.range)) return false;
    *target.value = static_cast<T>(number);
    return true;
  }
  bool operator()(const ConfigField::Real<double>& target) const {
    if (!value.is_number() || !in_range(value.get<double>(), target.range)) return false;
    *target.value = value.get<double>();
    return true;
  }
  bool operator()(const ConfigField::Integer<std::optional<int64_t>>& target) const {
    return assign_optional<ConfigField::Integer<int64_t>, int64_t>(target);
  }
  bool operator()(const ConfigField::Real<std::optional<double>>& target) const {
    return assign_optional<ConfigField::Real<double>, double>(target);
  }
  bool operator()(bool* target) const {
    if (!value.is_boolean()) return false;
    *target = value.get<bool>();
    return true;
  }
  bool operator()(std::string* target) const {
    if (!value.is_string()) return false;
    *target = value.get<std::string>();
    return true;
  }
  bool operator()(std::vector<std::string>* target) const {
    const auto is_string = [](const Json& element) { return element.is_string(); };
    if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_string)) return false;
    *target = value.get<std::vector<std::string>>();
    return true;
  }
  bool operator()(const ConfigField::Choice& choice) const {
    if (!value.is_string()) return false;
    const auto found =
        std::find(choice.names.begin(), choice.names.end(), value.get_ref<const std::string&>());
    if (found == choice.names.end()) return false;
    choice.set(static_cast<size_t>(found - choice.names.begin()));
    return true;
  }

 private:
  template <class Plain, class T, class Target>
  bool assign_optional(const Target& target) const {
    T number{};
    if (!value.is_null() && !(*this)(Plain{&number, target.range})) return false;
    *target.value = value.is_null() ? std::nullopt : std::optional<T>(number);
    return true;
  }
};

// The JSON that a value given as text stands for.
struct FromText {
  const std::string& value;

  Json operator()(std::string*) const { return value; }
  Json operator()(const ConfigField::Choice&) const { return value; }
  Json operator()(std::vector<std::string>*) const {
    return value.starts_with("[") ? json_of_text(value) : Json::array({value});
  }
  template <class Target>
  Json operator()(const Target&) const {
    return json_of_text(value);
  }
};

// ---- Names ----

// Levenshtein's: how many characters to insert, delete or replace.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::string nearest(std::string_view name, const std::vector<std::string>& known) {
  // Far longer names are near to nothing, and comparing them would take their length squared.
  const std::string_view head = name.substr(0, 100);
  return *std::min_element(known.begin(), known.end(),
                           [&](const std::string& a, const std::string& b) {
                             return edit_distance(head, a) < edit_distance(head, b);
                           });
}

bool has_alias(const ConfigField& field, const std::string& name) {
  return std::find(field.aliases.begin(), field.aliases.end(), name) != field.aliases.end();
}

std::vector<const ConfigField*> fields_named(const ConfigSection& section,
                                             const std::string& name) {
  std::vector<const ConfigField*> found;
  for (const ConfigField& field : section.fields) {
    if (field.key == name || has_alias(field, name)) found.push_back(&field);
  }
  return found;
}

[[noreturn]] void reject_section(const std::string& origin, const std::string& name,
                                 const std::vector<ConfigSection>& sections) {
  std::vector<std::string> known;
  for (const ConfigSection& section : sections) {
    if (!fields_named(section, name).empty()) {
      reject_input(origin, ": key \"", name, "\" must stand in section \"", section.name, "\"");
    }
    known.push_back(section.name);
  }
  reject_input(origin, ": unknown section \"", name, "\"; did you mean \"", nearest(name, known),
               "\"?");
}

[[noreturn]] void reject_key(const std::string& origin, const ConfigSection& section,
                             const std::string& key, const std::vector<ConfigSection>& sections) {
  for (const ConfigSection& other : sections) {
    if (!fields_named(other, key).empty()) {
      reject_input(origin, ": unknown key ", section.name, ".", key, "; did you mean ", other.name,
                   ".", key, "?");
    }
  }
  std::vector<std::string> known;
  for (const ConfigField& field : section.fields) {
    known.push_back(field.key);
    known.insert(known.end(), field.aliases.begin(), field.aliases.end());
  }
  check_input(!known.empty(), origin, ": unknown key ", section.name, ".", key);
  reject_input(origin, ": unknown key ", section.name, ".", key, "; did you mean ", section.name,
               ".", nearest(key, known), "?");
}

}  // namespace

// ---- ConfigReader ----

ConfigReader::ConfigReader() = default;
ConfigReader::~ConfigReader() = default;
ConfigReader::ConfigReader(ConfigReader&&) noexcept = default;
ConfigReader& ConfigReader::operator=(ConfigReader&&) noexcept = default;

void ConfigReader::add_file(const std::string& path) {
  add_json(read_file(path), path);
}

void ConfigReader::add_json(std::string_view json, const std::string& origin) {
  const Json root = parse_json(json, origin);
  check_input(root.is_object(), origin, ": must hold a JSON object of sections; got ", shown(root));
  Layer layer{origin, {}};
  for (const auto& [section, keys] : root.items()) {
    layer.entries.push_back({section, std::nullopt, keys.is_object() ? Json::object() : keys});
    if (!keys.is_object()) continue;
    for (const auto& [key, value] : keys.items()) layer.entries.push_back({section, key, value});
  }
  layers_.push_back(std::move(layer));
}

void ConfigReader::set(std::string section, std::string key, std::string value,
                       std::string origin) {
  check_input(is_utf8(value), origin, ": the value must be valid UTF-8");
  Entry entry{std::move(section), std::move(key), std::move(value), /*is_text=*/true};
  layers_.push_back({std::move(origin), {std::move(entry)}});
}

void ConfigReader::set(std::string section, std::string key, std::vector<std::string> values,
                       std::string origin) {
  for (const std::string& value : values) {
    check_input(is_utf8(value), origin, ": the value must be valid UTF-8");
  }
  Entry entry{std::move(section), std::move(key), std::move(values)};
  layers_.push_back({std::move(origin), {std::move(entry)}});
}

void ConfigReader::set(std::string_view assignment) {
  const std::string origin = text("--set ", assignment);
  const size_t equals = assignment.find('=');
  const size_t dot = assignment.substr(0, equals).find('.');
  check_input(equals != std::string_view::npos && dot != std::string_view::npos && dot > 0 &&
                  equals > dot + 1,
              origin, ": must have the form section.key=value");
  set(std::string(assignment.substr(0, dot)),
      std::string(assignment.substr(dot + 1, equals - dot - 1)),
      std::string(assignment.substr(equals + 1)), origin);
}

bool ConfigReader::has(std::string_view section, std::string_view key) const {
  const auto gives_it = [&](const Entry& entry) {
    return entry.section == section && entry.key == key;
  };
  return std::any_of(layers_.begin(), layers_.end(), [&](const Layer& layer) {
    return std::any_of(layer.entries.begin(), layer.entries.end(), gives_it);
  });
}

void ConfigReader::read(const std::vector<ConfigSection>& sections) const {
  for (const Layer& layer : layers_) read_layer(layer, sections);
  check_required(sections);
}

void ConfigReader::read_layer(const Layer& layer,
                              const std::vector<ConfigSection>& sections) const {
  struct Assignment {
    const ConfigSection& section;
    const ConfigField& field;
    const Entry& entry;
    bool is_shared;
  };
  std::vector<Assignment> assignments;
  for (const Entry& entry : layer.entries) {
    const auto section =
        std::find_if(sections.begin(), sections.end(),
                     [&](const ConfigSection& each) { return each.name == entry.section; });
    if (section == sections.end()) reject_section(layer.origin, entry.section, sections);
    if (!entry.key) {
      check_input(entry.value.is_object(), layer.origin, ": section \"", entry.section,
                  "\" must be an object of keys; got ", shown(entry.value));
      continue;
    }
    const auto fields = fields_named(*section, *entry.key);
    if (fields.empty()) reject_key(layer.origin, *section, *entry.key, sections);
    for (const ConfigField* field : fields) {
      assignments.push_back({*section, *field, entry, fields.size() > 1});
    }
  }
  std::set<const ConfigField*> given;
  for (const bool shared : {true, false}) {
    for (const auto& [section, field, entry, is_shared] : assignments) {
      if (is_shared != shared) continue;
      check_input(shared || given.insert(&field).second, layer.origin, ": ", section.name, ".",
                  *entry.key, " is another name of a key that is given too; give one of them");
      const Json value =
          entry.is_text
              ? std::visit(FromText{entry.value.get_ref<const std::string&>()}, field.target)
              : entry.value;
      check_input(std::visit(Assign{value}, field.target), layer.origin, ": ", section.name, ".",
                  *entry.key, " must be ", expected_value(field), "; got ", shown(value));
    }
  }
}

void ConfigReader::check_required(const std::vector<ConfigSection>& sections) const {
  for (const ConfigSection& section : sections) {
    for (const ConfigField& field : section.fields) {
      if (!field.required || has(section.name, field.key)) continue;
      const bool given =
          std::any_of(field.aliases.begin(), field.aliases.end(),
                      [&](const std::string& alias) { return has(section.name, alias); });
      check_input(given, layers_.empty() ? "config" : layers_[0].origin, ": ", section.name, ".",
                  field.key, " is required and missing; give ", expected_value(field));
    }
  }
}

std::string_view checked_json_object(std::string_view json, const std::string& origin) {
  check_input(json.size() <= kMaxFileBytes, origin, ": must be of at most ", kMaxFileBytes,
              " bytes; the file is longer");
  const Json root = parse_json(json, origin);
  check_input(root.is_object(), origin, ": must hold a JSON object; got ", shown(root));
  return without_byte_order_mark(json);
}

// ---- Finding ----

std::string find_config(const std::string& name, const std::vector<std::string>& directories) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::exists(name, ignored)) return name;
  const fs::path asked(name);
  std::string known;
  for (const std::string& directory : directories) {
    const fs::path in_configs = asked.lexically_relative("configs");
    const bool below = !in_configs.empty() && *in_configs.begin() != "..";
    const fs::path candidate = fs::path(directory) / (below ? in_configs : asked);
    for (const fs::path& path : {candidate, fs::path(candidate.string() + ".json")}) {
      if (asked.is_relative() && fs::is_regular_file(path, ignored)) return path.string();
    }
    std::set<std::string> names;
    for (const auto& file : fs::directory_iterator(directory, ignored)) {
      if (file.path().extension() == ".json") names.insert(file.path().filename().string());
    }
    for (const std::string& each : names) known += (known.empty() ? "" : ", ") + each;
  }
  reject_input(name, ": no such config file; installed configs: ", known.empty() ? "none" : known);
}

}  // namespace xtrain
