#include "distributed/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

#include "core/error.h"

namespace xtrain {
namespace {

constexpr auto kBetweenAttempts = std::chrono::milliseconds(50);

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

std::string text_of(const MasterAddress& address) {
  return text(address.host, ":", address.port);
}

Addresses resolve(const MasterAddress& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  check(error == 0, "the host of rank 0 must be known here; ", address.host, ": ",
        gai_strerror(error));
  return {found, freeaddrinfo};
}

Socket open_socket(const addrinfo& address) {
  Socket s(socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  setsockopt(s.descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return s;
}

bool wait_for_event(const Socket& socket, short event, std::chrono::milliseconds timeout) {
  pollfd entry{socket.descriptor(), event, 0};
  const auto wait = std::max<int64_t>(0, timeout.count());
  return poll(&entry, 1, static_cast<int>(std::min<int64_t>(wait, 1 << 30))) > 0;
}

std::chrono::milliseconds left_until(Deadline deadline) {
  return std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
}

// 0, or errno.
int try_to_connect(const Socket& socket, const addrinfo& address, Deadline deadline) {
  if (connect(socket.descriptor(), address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!wait_for_event(socket, POLLOUT, left_until(deadline))) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

std::pair<sockaddr_storage, socklen_t> own_end(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), &size);
  return {address, size};
}

bool again(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

Socket::~Socket() {
  if (descriptor_ >= 0) close(descriptor_);
}

void Socket::end_sending() const {
  shutdown(descriptor_, SHUT_WR);
}

void Socket::shut_down() const {
  shutdown(descriptor_, SHUT_RDWR);
}

Socket listen_on(const MasterAddress& address) {
  const Addresses addresses = resolve(address);
  int error = 0;
  for (const addrinfo* a = addresses.get(); a; a = a->ai_next) {
    Socket s = open_socket(*a);
    const int on = 1;  // connections of an earlier run that wait for their end do not count
    setsockopt(s.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(s.descriptor(), a->ai_addr, a->ai_addrlen) == 0 &&
        listen(s.descriptor(), SOMAXCONN) == 0) {
      return s;
    }
    error = errno;
  }
  fail("rank 0 cannot listen on ", text_of(address), ": ", std::strerror(error),
       error == EADDRINUSE ? "; another program or a second rank 0 has it, choose another port"
                           : "; the address must be one of this host");
}

int port_of(const Socket& listener) {
  char port[NI_MAXSERV] = "";
  const auto [address, size] = own_end(listener);
  getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, nullptr, 0, port, sizeof(port),
              NI_NUMERICSERV);
  return std::atoi(port);
}

std::string own_address(const Socket& connection) {
  char host[NI_MAXHOST] = "";
  const auto [address, size] = own_end(connection);
  getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof(host), nullptr, 0,
              NI_NUMERICHOST);
  return host;
}

Socket connect_to(const MasterAddress& address, Deadline deadline) {
  int error = ETIMEDOUT;
  do {
    const Addresses addresses = resolve(address);
    for (const addrinfo* a = addresses.get(); a; a = a->ai_next) {
      Socket s = open_socket(*a);
      error = try_to_connect(s, *a, deadline);
      if (error == 0) return s;
    }
    std::this_thread::sleep_for(kBetweenAttempts);
  } while (std::chrono::steady_clock::now() < deadline);
  fail("rank 0 must listen on ", text_of(address),
       "; no connection in time: ", std::strerror(error));
}

std::optional<Socket> accept_from(const Socket& listener) {
  Socket s(accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!s.is_open()) return std::nullopt;
  const int on = 1;
  setsockopt(s.descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return s;
}

bool wait_readable(const Socket& socket, std::chrono::milliseconds timeout) {
  return wait_for_event(socket, POLLIN, timeout);
}

std::optional<std::string> receive(const Socket& socket) {
  char chunk[16384];
  const ssize_t n = recv(socket.descriptor(), chunk, sizeof(chunk), MSG_DONTWAIT);
  if (n > 0) return std::string(chunk, static_cast<size_t>(n));
  if (n < 0 && again(errno)) return "";
  return std::nullopt;
}

bool send_some(const Socket& socket, std::string& text) {
  while (!text.empty()) {
    const ssize_t n =
        send(socket.descriptor(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) return again(errno);
    text.erase(0, static_cast<size_t>(n));
  }
  return true;
}

bool send_all(const Socket& socket, std::string text, Deadline deadline) {
  while (send_some(socket, text)) {
    if (text.empty()) return true;
    if (!wait_for_event(socket, POLLOUT, left_until(deadline))) return false;
  }
  return false;
}

}  // namespace xtrain
