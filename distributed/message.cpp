#include "distributed/message.h"

#include "core/error.h"

namespace xtrain {
namespace {

template <class T>
void put(std::string& bytes, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    bytes += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i));
  }
}

template <class T>
T get_at(const std::string& bytes, size_t at) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  }
  return static_cast<T>(value);
}

// Where the parts of a message begin.
constexpr size_t kKindAt = sizeof(uint32_t);
constexpr size_t kNumberAt = kKindAt + sizeof(uint8_t);
constexpr size_t kNameSizeAt = kNumberAt + sizeof(int64_t);
constexpr size_t kNameAt = kNameSizeAt + sizeof(uint32_t);

}  // namespace

std::string encode(const Message& message) {
  std::string bytes;
  put(bytes, static_cast<uint32_t>(kNameAt - kKindAt + message.name.size() + message.data.size()));
  put(bytes, static_cast<uint8_t>(message.kind));
  put(bytes, message.number);
  put(bytes, static_cast<uint32_t>(message.name.size()));
  bytes += message.name + message.data;
  check(bytes.size() <= kLongestMessage, "a message must have at most ", kLongestMessage,
        " bytes; got ", bytes.size());
  return bytes;
}

std::optional<Message> MessageReader::next(size_t longest) {
  if (bytes_.size() < sizeof(uint32_t)) return std::nullopt;
  const size_t end = sizeof(uint32_t) + get_at<uint32_t>(bytes_, 0);
  check(end >= kNameAt && end <= longest, "a message must have ", kNameAt, " to ", longest,
        " bytes; got ", end);
  if (bytes_.size() < end) return std::nullopt;
  const size_t data_at = kNameAt + get_at<uint32_t>(bytes_, kNameSizeAt);
  const auto kind = get_at<uint8_t>(bytes_, kKindAt);
  check(data_at <= end && kind <= static_cast<uint8_t>(MessageKind::goodbye),
        "what came is not a message");
  Message message{static_cast<MessageKind>(kind), get_at<int64_t>(bytes_, kNumberAt),
                  bytes_.substr(kNameAt, data_at - kNameAt), bytes_.substr(data_at, end - data_at)};
  bytes_.erase(0, end);
  return message;
}

}  // namespace xtrain
