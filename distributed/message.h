#pragma once
// What ranks and the rendezvous say to each other over a connection.
//
// On the wire a message is the number of its bytes after this number (u32), its kind (u8), number
// (i64), the size of its name (u32), the name and the data; integers little-endian.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace xtrain {

enum class MessageKind : uint8_t {
  // From a rank.
  hello,   // number: its rank, name: of what it speaks and for how many ranks, data: the token
  set,     // name: key, data: value
  get,     // number: of the request, name: key
  alive,   // number: of collectives begun; also from the rendezvous, to say that it lives
  failed,  // number: exit code, data: reason
  leave,
  // From the rendezvous.
  welcome,  // all have joined
  refused,  // data: reason
  value,    // number: of the request, data: value
  lost,     // number: rank, name: exit code, data: reason
  goodbye,  // all have left
};

struct Message {
  MessageKind kind = MessageKind::alive;
  int64_t number = 0;
  std::string name;
  std::string data;
};

// Bytes of a message: of one that comes before the token, and of any.
inline constexpr size_t kLongestHello = 512;
inline constexpr size_t kLongestMessage = size_t{1} << 20;

std::string encode(const Message& message);

// Takes messages out of the bytes of a connection.
class MessageReader {
 public:
  void append(const std::string& bytes) { bytes_ += bytes; }
  // None until a whole message is there. Error when what comes is no message or is too long.
  std::optional<Message> next(size_t longest);

 private:
  std::string bytes_;
};

}  // namespace xtrain
