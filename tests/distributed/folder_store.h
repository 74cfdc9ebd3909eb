#pragma once
// A store for processes of one host: a file a key.

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "core/error.h"
#include "distributed/key_value_store.h"

namespace xtrain {

class FolderStore final : public KeyValueStore {
 public:
  explicit FolderStore(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void set(const std::string& key, std::span<const std::byte> value) override {
    const std::filesystem::path path = path_of(key), partial = path.string() + ".partial";
    std::ofstream(partial, std::ios::binary)
        .write(reinterpret_cast<const char*>(value.data()),
               static_cast<std::streamsize>(value.size()));
    std::filesystem::rename(partial, path);
  }

  Bytes get(const std::string& key, std::chrono::milliseconds timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (!std::filesystem::exists(path_of(key))) {
      check(std::chrono::steady_clock::now() < deadline, "store: nobody has set ", key);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::ifstream file(path_of(key), std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(file), {}};
    const auto bytes = std::as_bytes(std::span(content));
    return {bytes.begin(), bytes.end()};
  }

 private:
  std::filesystem::path path_of(std::string key) const {
    for (char& c : key) c = c == '/' ? '_' : c;
    return folder_ / ("key_" + key);
  }

  std::filesystem::path folder_;
};

}  // namespace xtrain
