#pragma once
// Prints configs and the tables of their keys.

#include <string>
#include <vector>

#include "core/config_field.h"

namespace xtrain {

// The values as JSON, in the order of the descriptions; reading it back gives the same values.
std::string config_to_json(const std::vector<ConfigSection>& sections);

// The present value of a field as JSON.
std::string value_text(const ConfigField& field);

// The table of keys as a page of Markdown: key, type, default, meaning and aliases.
std::string config_to_markdown(const std::vector<ConfigSection>& sections);

// The same for a terminal: two lines a key.
std::string config_to_help(const std::vector<ConfigSection>& sections);

}  // namespace xtrain
