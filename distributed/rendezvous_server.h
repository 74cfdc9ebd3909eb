#pragma once
// Rank 0's side of the rendezvous: one thread that lets the ranks in, keeps their store and watches
// over them.

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "distributed/message.h"
#include "distributed/socket.h"

namespace xtrain {

struct RendezvousRules {
  int size = 1;
  std::string token;
  // All ranks must have joined after this time; later none may be silent, nor lag behind others in
  // its collectives, for as long.
  std::chrono::milliseconds timeout{0};
};

// How often a rank and the rendezvous tell each other that they live.
std::chrono::milliseconds heartbeat_interval(std::chrono::milliseconds timeout);

// What the first message of a rank names beside its rank and the token.
std::string hello_name(int size);

class RendezvousServer {
 public:
  RendezvousServer(Socket listener, RendezvousRules rules);
  ~RendezvousServer();  // sends what is still to be sent, and closes all connections
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kStranger = -1;

  struct Connection {
    Socket socket;
    MessageReader in;
    std::string out;
    int rank = kStranger;
    bool closing = false;  // after what is in `out`
    Clock::time_point last_heard = Clock::now();
  };
  struct Member {
    Connection* connection = nullptr;
    bool joined = false, left = false;
    int64_t begun = 0;
    std::optional<Clock::time_point> behind_since;  // others have begun more collectives
  };
  struct Request {
    int rank;
    int64_t number;
  };

  void serve();
  void say_last_words();
  void wait_for_events();
  size_t strangers() const;
  void accept_connections();
  void read_from(Connection& connection);
  void handle(Connection& connection, const Message& message);
  void let_in(Connection& connection, const Message& hello);
  void answer_get(const Connection& connection, const Message& request);
  void store(const Message& message);
  void note_progress(Member& member, int64_t begun);
  void member_left(Member& member);
  void check_arrivals();
  void check_members();
  void drop_late_strangers();
  void beat();
  void lose(int rank, const std::string& reason, const std::string& exit_code);
  void refuse(Connection& connection, const std::string& reason);
  void end_connection(Connection& connection);
  void send_pending();
  void send_to(Connection& connection, const Message& message);
  void send_to_all(const Message& message);
  std::string missing_ranks() const;

  const Socket listener_;
  const RendezvousRules rules_;
  const Clock::time_point start_;
  Clock::time_point next_beat_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<Member> members_;
  bool complete_ = false;           // all have joined
  std::optional<Message> verdict_;  // what ended the run: a loss, or a rank that is missing
  std::map<std::string, std::string> values_;
  std::map<std::string, std::vector<Request>> waiting_;  // for a key
  Socket wake_reader_, wake_writer_;                     // ends a wait for events
  std::thread thread_;
};

}  // namespace xtrain
