// Tensors in one file or in shards with an index.

#include "model/hf/tensor_files.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "model/hf/tensor_writer.h"
#include "support/catch.h"
#include "support/rejection.h"
#include "support/temporary_folder.h"

using namespace xtrain;
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

namespace {

// `count` F32 values that the name tells apart.
TensorToWrite tensor(const std::string& name, int64_t count, const std::string& dtype = "F32") {
  const int64_t bytes = count * safetensors_item_size(dtype);
  return {{name, dtype, {count}}, [name, bytes](const TensorToWrite::Put& put) {
            for (int64_t i = 0; i < bytes; ++i) {  // in pieces of one byte
              const auto byte = static_cast<std::byte>(name.back() + i);
              put({&byte, 1});
            }
          }};
}

// Tensors a to e of 40 bytes in shards of two.
void write_shards(const std::string& folder) {
  write_tensor_files(
      folder, {tensor("a", 10), tensor("b", 10), tensor("c", 10), tensor("d", 10), tensor("e", 10)},
      80);
}

std::string refusal(const TemporaryFolder& folder) {
  return rejection([&] { TensorFiles(folder.path.string()); });
}

// A folder of shards whose index is changed.
std::string refusal_of_index(const std::function<void(Json&)>& change) {
  const TemporaryFolder folder;
  write_shards(folder.path.string());
  Json index = Json::parse(folder.read(kTensorIndex));
  change(index);
  folder.write(kTensorIndex, index.dump());
  return refusal(folder);
}

bool mentions(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("tensors are cut into shards that an index names", "[tensor_files]") {
  const TemporaryFolder folder;
  write_shards(folder.path.string());
  const Json index = Json::parse(folder.read(kTensorIndex));
  CHECK(index["metadata"]["total_size"] == 200);
  CHECK(index["weight_map"]["a"] == "model-00001-of-00003.safetensors");
  CHECK(index["weight_map"]["d"] == "model-00002-of-00003.safetensors");
  CHECK(index["weight_map"]["e"] == "model-00003-of-00003.safetensors");
  CHECK(index["weight_map"].size() == 5);
  const TensorFiles files(folder.path.string());
  CHECK(files.files().size() == 3);
  CHECK(files.entries().size() == 5);
  for (const SafetensorsFile& file : files.files()) {
    CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
  }
  CHECK(files.at("c").bytes[3] == static_cast<std::byte>('c' + 3));
  CHECK(files.find("f") == nullptr);
  CHECK(mentions(rejection([&] { files.at("f"); }), "tensor f is missing"));
}

TEST_CASE("a tensor larger than a shard has one to itself", "[tensor_files]") {
  const TemporaryFolder folder;
  write_tensor_files(folder.path.string(), {tensor("a", 1), tensor("b", 100), tensor("c", 1)}, 80);
  const TensorFiles files(folder.path.string());
  CHECK(files.files().size() == 3);
}

TEST_CASE("tensors that fit one file need no index", "[tensor_files]") {
  const TemporaryFolder folder;
  write_tensor_files(folder.path.string(), {tensor("b", 3, "F16"), tensor("a", 3)}, 1000);
  CHECK_FALSE(fs::exists(folder.file(kTensorIndex)));
  const TensorFiles files(folder.path.string());
  // Wider types come first, so that each value is aligned.
  CHECK(files.files()[0].entries()[0].name == "a");
  CHECK(files.at("b").dtype == "F16");
}

TEST_CASE("the same tensors give the same bytes", "[tensor_files]") {
  const TemporaryFolder a, b;
  write_shards(a.path.string());
  write_shards(b.path.string());
  for (const auto& entry : fs::directory_iterator(a.path)) {
    const std::string name = entry.path().filename().string();
    CHECK(a.read(name) == b.read(name));
  }
}

TEST_CASE("index and shards must agree exactly", "[tensor_files]") {
  const std::string first = "model-00001-of-00003.safetensors";
  const std::string second = "model-00002-of-00003.safetensors";
  CHECK(refusal_of_index([](Json&) {}) == "accepted");
  CHECK(mentions(refusal_of_index([](Json& j) { j["weight_map"].erase("b"); }),
                 "weight_map lacks tensor b, which " + first + " holds"));
  CHECK(mentions(refusal_of_index([&](Json& j) { j["weight_map"]["f"] = first; }),
                 "weight_map says that tensor f is in " + first + "; it is not"));
  CHECK(mentions(refusal_of_index([&](Json& j) { j["weight_map"]["b"] = second; }),
                 "tensor b is in " + second + "; it is in " + first));
  CHECK(mentions(refusal_of_index([](Json& j) { j["weight_map"]["b"] = "none.safetensors"; }),
                 "none.safetensors"));
  CHECK(mentions(refusal_of_index([](Json& j) { j["weight_map"]["b"] = 3; }), "must name a file"));
  for (const char* name : {"../model.safetensors", "/tmp/x", "..", "", "a/b"}) {
    CHECK(mentions(refusal_of_index([&](Json& j) { j["weight_map"]["b"] = name; }),
                   "must name a file of the same folder"));
  }
  CHECK(mentions(refusal_of_index([](Json& j) { j.erase("weight_map"); }), "weight_map"));
  CHECK(mentions(refusal_of_index([](Json& j) { j = Json::array(); }), "must hold a JSON object"));
}

TEST_CASE("a tensor in two shards is refused", "[tensor_files]") {
  const TemporaryFolder folder;
  write_shards(folder.path.string());
  fs::copy_file(folder.file("model-00001-of-00003.safetensors"), folder.file("other.safetensors"));
  Json index = Json::parse(folder.read(kTensorIndex));
  index["weight_map"]["b"] = "other.safetensors";
  folder.write(kTensorIndex, index.dump());
  CHECK(mentions(refusal(folder), "tensor"));
}

TEST_CASE("a folder without tensors, or with half a shard, is refused", "[tensor_files]") {
  const TemporaryFolder folder;
  CHECK(mentions(refusal(folder), "holds neither model.safetensors nor"));
  write_shards(folder.path.string());
  const std::string shard = "model-00002-of-00003.safetensors";
  const std::string whole = folder.read(shard);
  folder.write(shard, whole.substr(0, whole.size() - 1));
  CHECK(mentions(refusal(folder), shard));
  fs::remove(folder.file(shard));
  CHECK(mentions(refusal(folder), shard));
}

TEST_CASE("weights in a format that is not read are named with what to do", "[tensor_files]") {
  for (const char* name : {"pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "model.gguf",
                           "consolidated.00.pth", "tf_model.h5", "flax_model.msgpack"}) {
    const TemporaryFolder folder;
    folder.write(name, "x");
    folder.write("config.json", "{}");
    CHECK(refusal(folder) ==
          folder.path.string() +
              ": holds neither model.safetensors nor model.safetensors.index.json; it holds " +
              name +
              ", a format that is not read: save the model as safetensors, as transformers' "
              "save_pretrained does");
  }
  const TemporaryFolder folder;  // of tokens
  folder.write("train.bin", "x");
  CHECK(refusal(folder).ends_with(".index.json"));
}
