#include "core/config_writer.h"

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace xtrain {
namespace {

using Json = nlohmann::ordered_json;

struct CurrentValue {
  template <class T>
  Json operator()(const ConfigField::Integer<T>& target) const {
    return of(*target.value);
  }
  template <class T>
  Json operator()(const ConfigField::Real<T>& target) const {
    return of(*target.value);
  }
  template <class T>
  Json operator()(T* value) const {
    return *value;
  }
  Json operator()(const ConfigField::Choice& choice) const { return choice.names[choice.get()]; }

 private:
  template <class T>
  static Json of(const T& value) {
    return value;
  }
  template <class T>
  static Json of(const std::optional<T>& value) {
    return value ? Json(*value) : Json(nullptr);
  }
};

std::string default_of(const ConfigField& field) {
  if (field.required) return "required";
  if (!field.default_text.empty()) return field.default_text;
  return value_text(field);
}

std::string aliases_of(const ConfigField& field) {
  std::string all;
  for (const std::string& alias : field.aliases) all += (all.empty() ? "" : ", ") + alias;
  return all;
}

}  // namespace

std::string config_to_json(const std::vector<ConfigSection>& sections) {
  Json root = Json::object();
  for (const ConfigSection& section : sections) {
    Json& keys = root[section.name] = Json::object();
    for (const ConfigField& field : section.fields) {
      if (field.written) keys[field.key] = std::visit(CurrentValue{}, field.target);
    }
  }
  return root.dump(2) + "\n";
}

std::string value_text(const ConfigField& field) {
  return std::visit(CurrentValue{}, field.target).dump();
}

std::string config_to_markdown(const std::vector<ConfigSection>& sections) {
  std::string page;
  for (const ConfigSection& section : sections) {
    page += text("## ", section.name, "\n\n| key | value | default | meaning | also read as |\n",
                 "|---|---|---|---|---|\n");
    for (const ConfigField& field : section.fields) {
      page += text("| ", field.key, " | ", expected_value(field), " | ", default_of(field), " | ",
                   field.help, " | ", aliases_of(field), " |\n");
    }
    page += "\n";
  }
  return page;
}

std::string config_to_help(const std::vector<ConfigSection>& sections) {
  std::string page;
  for (const ConfigSection& section : sections) {
    for (const ConfigField& field : section.fields) {
      page += text("  ", section.name, ".", field.key, " = ", default_of(field), "\n      ",
                   field.help, " (", expected_value(field), ")\n");
    }
  }
  return page;
}

}  // namespace xtrain
