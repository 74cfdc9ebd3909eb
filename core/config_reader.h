#pragma once
// Reads config files: strict JSON, an object of sections, which are objects of keys.

#include <string>
#include <string_view>
#include <vector>

#include "core/config_field.h"

namespace xtrain {

// Collects the sources of a config in order of rising precedence, then assigns them to structs.
// Every error is an InputError of one line that names the source and the key or the line.
class ConfigReader {
 public:
  ConfigReader();
  ~ConfigReader();
  ConfigReader(ConfigReader&&) noexcept;
  ConfigReader& operator=(ConfigReader&&) noexcept;

  // A JSON object whose members are sections, which are objects of keys. At most 16 MiB; a UTF-8
  // byte order mark at the start is skipped; comments, NaN and repeated keys are refused.
  void add_file(const std::string& path);
  void add_json(std::string_view json, const std::string& origin);

  // A value given as text, read according to the type of its key: strings and names as they are,
  // numbers, booleans and null as in JSON, lists as a JSON array or as a single element.
  void set(std::string section, std::string key, std::string value, std::string origin);
  void set(std::string section, std::string key, std::vector<std::string> values,
           std::string origin);
  // "section.key=value"
  void set(std::string_view assignment);

  // Whether some source gives the section's key under exactly this name.
  bool has(std::string_view section, std::string_view key) const;

  // Assigns every given key, checking names, types and ranges, and that no required key is missing.
  // Fields that no source gives keep their values. May be called again with other sections, e.g.
  // once to find a key on which the defaults of the others depend.
  void read(const std::vector<ConfigSection>& sections) const;

 private:
  struct Entry;
  struct Layer {
    std::string origin;
    std::vector<Entry> entries;
  };

  void read_layer(const Layer& layer, const std::vector<ConfigSection>& sections) const;
  void check_required(const std::vector<ConfigSection>& sections) const;

  std::vector<Layer> layers_;
};

// The text, without a UTF-8 byte order mark, to be parsed and read key by key: for configs of other
// programs. Throws InputError naming the origin, the line and the column unless it is one JSON
// object in which no object has a key twice, no deeper and no longer than a config may be.
std::string_view checked_json_object(std::string_view json, const std::string& origin);

// The path of a config: `name` if it exists, else `name` or `name`.json in one of the directories,
// a leading "configs/" of the name left out. Throws InputError listing the configs that exist.
std::string find_config(const std::string& name, const std::vector<std::string>& directories);

}  // namespace xtrain
