#pragma once
// TCP sockets that belong to somebody.

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "distributed/environment.h"

namespace xtrain {

using Deadline = std::chrono::steady_clock::time_point;

// A descriptor that is closed with its owner. Programs started by this one do not inherit it.
class Socket {
 public:
  explicit Socket(int descriptor = -1) : descriptor_(descriptor) {}
  ~Socket();
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  int descriptor() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }
  int release() { return std::exchange(descriptor_, -1); }  // to the caller, who closes it
  void end_sending() const;  // the other side sees the end behind what was sent
  void shut_down() const;    // whoever waits for the connection, on either side, sees it end

 private:
  int descriptor_;
};

// Accepts connections to that address of this host; port 0 takes a free one. Error naming the
// address and the system's reason.
Socket listen_on(const MasterAddress& address);
int port_of(const Socket& listener);
// This end of a connection as the other end sees it: an IP address.
std::string own_address(const Socket& connection);

// Tries again until somebody listens there. Error naming the address when nobody does in time.
Socket connect_to(const MasterAddress& address, Deadline deadline);

// None where there is no connection to be had at the moment.
std::optional<Socket> accept_from(const Socket& listener);

// Waits until the socket can be read, or until the time is over: then false.
bool wait_readable(const Socket& socket, std::chrono::milliseconds timeout);

// What has arrived, at once. An empty text stands for nothing yet, none for the end of the
// connection.
std::optional<std::string> receive(const Socket& socket);

// Sends as much as goes at once and removes it from `text`. False when the connection has ended.
bool send_some(const Socket& socket, std::string& text);

// Sends all of it. False when the connection has ended or takes no more until the deadline.
bool send_all(const Socket& socket, std::string text, Deadline deadline);

}  // namespace xtrain
