#include "train/data/document_encoder.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"

namespace xtrain {

using Json = nlohmann::json;

std::string text_of_json(std::string_view line, const std::string& wanted,
                         const std::string& where) {
  const std::string field = wanted.empty() ? "text" : wanted;
  Json json;
  try {
    json = Json::parse(line);
  } catch (const Json::parse_error& error) {
    reject_input(where, ": is not JSON at byte ", error.byte, " of the line");
  }
  check_input(json.is_object(), where, ": must be a JSON object; it is of type ", json.type_name());
  const auto found = json.find(field);
  check_input(found != json.end(), where, ": has no member \"", field, "\"");
  check_input(found->is_string(), where, ": member \"", field,
              "\" must be a string; it is of type ", found->type_name());
  return std::move(found->get_ref<std::string&>());
}

DocumentEncoder::DocumentEncoder(std::shared_ptr<const Vocabulary> vocabulary, Markers markers,
                                 std::string jsonl_field, const DocumentReader& reader)
    : vocabulary_(std::move(vocabulary)),
      encoder_(*vocabulary_),
      markers_(markers),
      jsonl_field_(std::move(jsonl_field)),
      reader_(reader) {}

std::string DocumentEncoder::where(const DocumentPart& part) const {
  if (part.json) return reader_.where(part.from);
  return text(reader_.file_name(part.from), ", from byte ", part.from.offset, " on");
}

void DocumentEncoder::encode(const DocumentBatch& batch, EncodedBatch& out) {
  out.ids.clear();
  out.parts.clear();
  for (const DocumentPart& part : batch.parts) {
    std::string_view text = batch.text_of(part);
    std::string parsed;
    if (part.json) text = parsed = text_of_json(text, jsonl_field_, reader_.where(part.from));
    encoder_.encode(text, where(part), out.ids, markers_);
    out.parts.push_back({out.ids.size(), static_cast<int64_t>(text.size())});
  }
}

}  // namespace xtrain
