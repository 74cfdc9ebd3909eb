#include "model/hf/safetensors_header.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/error.h"

namespace xtrain {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxRank = 64;  // bounds the memory that a header of brackets and commas can claim
constexpr const char* kMetadata = "__metadata__";

// Receives the header's JSON piece by piece, so that a hostile header is refused at its first wrong
// piece and never built up in memory.
class HeaderHandler : public nlohmann::json_sax<Json> {
 public:
  HeaderHandler(const std::string& path, SafetensorsHeader& header)
      : path_(path), header_(header) {}

  bool start_object(size_t) override {
    if (place_ == Place::outside) return enter(Place::header);
    if (place_ != Place::header) reject("must be a string, number or array; got an object");
    if (name_ == kMetadata) return enter(Place::metadata);
    header_.tensors.emplace_back();
    header_.tensors.back().name = name_;
    given_.clear();
    return enter(Place::tensor);
  }

  bool key(std::string& key) override {
    if (place_ == Place::header) {
      name_ = key;
      if (!names_.insert(key).second) reject("is given twice");
      return true;
    }
    key_ = key;
    if (place_ == Place::metadata) {
      if (!header_.metadata.emplace(key, "").second) reject("is given twice");
      return true;
    }
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      reject("is unknown; a tensor has dtype, shape and data_offsets");
    }
    if (!given_.insert(key).second) reject("is given twice");
    return true;
  }

  bool end_object() override {
    if (place_ == Place::header) return enter(Place::outside);
    if (place_ == Place::tensor) check_complete();
    key_.clear();
    return enter(Place::header);
  }

  bool start_array(size_t) override {
    if (place_ != Place::tensor || key_ == "dtype") reject("must not be an array");
    offsets_ = 0;
    return enter(key_ == "shape" ? Place::shape : Place::offsets);
  }

  bool end_array() override {
    if (place_ == Place::offsets && offsets_ != 2) reject("must be two numbers; got fewer");
    return enter(Place::tensor);
  }

  bool string(std::string& value) override {
    if (place_ == Place::metadata) {
      header_.metadata[key_] = value;
      return true;
    }
    if (place_ != Place::tensor || key_ != "dtype") reject("must not be a string");
    if (safetensors_item_size(value) == 0) {
      reject(
          "must be one of F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, BOOL, "
          "F8_E4M3, F8_E5M2; got \"" +
          value + "\"");
    }
    header_.tensors.back().dtype = value;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::shape && place_ != Place::offsets) reject("must not be a number");
    if (!std::in_range<int64_t>(value)) reject("must be below 2^63; got " + text(value));
    SafetensorsHeader::Tensor& tensor = header_.tensors.back();
    const int64_t number = static_cast<int64_t>(value);
    if (place_ == Place::shape) {
      if (tensor.shape.size() == kMaxRank) reject(text("must have at most ", kMaxRank, " sizes"));
      tensor.shape.push_back(number);
      return true;
    }
    if (offsets_ == 2) reject("must be two numbers; got more");
    (offsets_ == 0 ? tensor.begin : tensor.end) = number;
    ++offsets_;
    return true;
  }

  bool number_integer(number_integer_t value) override {
    reject("must not be negative; got " + text(value));
  }
  bool number_float(number_float_t, const std::string& value) override {
    reject("must be whole numbers; got " + value);
  }
  bool boolean(bool value) override { reject(value ? "must not be true" : "must not be false"); }
  bool null() override { reject("must not be null"); }
  bool binary(binary_t&) override { reject("must not be binary"); }

  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    reject_input(path_, ": the header must be valid JSON; it is not at its byte ", position);
  }

 private:
  enum class Place { outside, header, metadata, tensor, shape, offsets };

  bool enter(Place place) {
    place_ = place;
    return true;
  }

  void check_complete() {
    for (const char* each : {"dtype", "shape", "data_offsets"}) {
      key_ = each;
      if (!given_.contains(each)) reject("is missing");
    }
  }

  [[noreturn]] void reject(const std::string& reason) const {
    check_input(place_ != Place::outside, path_, ": the header must be a JSON object");
    const char* const kind = name_ == kMetadata ? ": " : ": tensor ";
    reject_input(path_, kind, name_, key_.empty() ? "" : ": " + key_, " ", reason);
  }

  const std::string& path_;
  SafetensorsHeader& header_;
  Place place_ = Place::outside;
  std::string name_, key_;  // of the tensor or the metadata, and within it
  std::set<std::string> names_, given_;
  int offsets_ = 0;  // read so far
};

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json, const std::string& path) {
  check_input(json.starts_with("{"), path, ": the header must be a JSON object");
  SafetensorsHeader header;
  HeaderHandler handler(path, header);
  Json::sax_parse(json, &handler);
  return header;
}

std::string safetensors_header_json(const SafetensorsHeader& header) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!header.metadata.empty()) json[kMetadata] = header.metadata;
  for (const SafetensorsHeader::Tensor& tensor : header.tensors) {
    json[tensor.name] = {{"dtype", tensor.dtype},
                         {"shape", tensor.shape},
                         {"data_offsets", {tensor.begin, tensor.end}}};
  }
  try {
    return json.dump();
  } catch (const Json::exception&) {
    fail("safetensors: names and metadata must be valid UTF-8");
  }
}

}  // namespace xtrain
