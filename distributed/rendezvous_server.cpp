#include "distributed/rendezvous_server.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "core/error.h"

namespace xtrain {
namespace {

using std::chrono::milliseconds;

// So long a connection may keep the token to itself, and so many may at a time.
constexpr auto kPatienceWithStrangers = milliseconds(5000);
constexpr size_t kMostStrangers = 64;
constexpr auto kLastWords = milliseconds(500);
constexpr const char* kNoExitCode = "1";

double seconds(milliseconds time) {
  return static_cast<double>(time.count()) / 1000.0;
}

// Takes as long whatever differs.
bool same_secret(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  int difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == 0;
}

}  // namespace

milliseconds heartbeat_interval(milliseconds timeout) {
  return std::clamp(timeout / 5, milliseconds(20), milliseconds(1000));
}

std::string hello_name(int size) {
  return text("xtrain rendezvous 1 for ", size, " ranks");
}

RendezvousServer::RendezvousServer(Socket listener, RendezvousRules rules)
    : listener_(std::move(listener)),
      rules_(std::move(rules)),
      start_(Clock::now()),
      next_beat_(start_),
      members_(static_cast<size_t>(rules_.size)) {
  int ends[2];
  check(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0, "a pipe could not be opened");
  wake_reader_ = Socket(ends[0]);
  wake_writer_ = Socket(ends[1]);
  thread_ = std::thread([this] { serve(); });
}

RendezvousServer::~RendezvousServer() {
  (void)!write(wake_writer_.descriptor(), "", 1);
  thread_.join();
}

void RendezvousServer::serve() {
  char byte = 0;
  while (read(wake_reader_.descriptor(), &byte, 1) != 1) {
    wait_for_events();
    accept_connections();
    for (size_t i = 0; i < connections_.size(); ++i) read_from(*connections_[i]);
    drop_late_strangers();
    check_arrivals();
    check_members();
    beat();
    send_pending();
  }
  say_last_words();
}

// A connection that is closed while words of the other side are still to be read is reset, and the
// other side may then lose what it was told. So the ranks, who end theirs when they have heard it,
// are waited for.
void RendezvousServer::say_last_words() {
  const auto deadline = Clock::now() + kLastWords;
  for (const auto& c : connections_) {
    send_all(c->socket, std::move(c->out), deadline);
    c->socket.end_sending();
  }
  for (const auto& c : connections_) {
    while (c->rank != kStranger && receive(c->socket)) {
      const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
      if (left <= milliseconds(0) || !wait_readable(c->socket, left)) break;
    }
  }
}

size_t RendezvousServer::strangers() const {
  return static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(),
                                           [](const auto& c) { return c->rank == kStranger; }));
}

void RendezvousServer::wait_for_events() {
  const short new_ones = strangers() < kMostStrangers ? POLLIN : 0;
  std::vector<pollfd> entries{{listener_.descriptor(), new_ones, 0},
                              {wake_reader_.descriptor(), POLLIN, 0}};
  for (const auto& c : connections_) {
    const int events = POLLIN | (c->out.empty() ? 0 : POLLOUT);
    entries.push_back({c->socket.descriptor(), static_cast<short>(events), 0});
  }
  const auto until_beat = std::chrono::ceil<milliseconds>(next_beat_ - Clock::now());
  poll(entries.data(), entries.size(), static_cast<int>(std::max<int64_t>(0, until_beat.count())));
}

void RendezvousServer::accept_connections() {
  for (size_t n = strangers(); n < kMostStrangers; ++n) {
    std::optional<Socket> socket = accept_from(listener_);
    if (!socket) return;
    connections_.push_back(std::make_unique<Connection>());
    connections_.back()->socket = std::move(*socket);
  }
}

// --- what ranks say ------------------------------------------------------------------------------

// One portion at a time: who talks without a pause must not keep the others waiting.
void RendezvousServer::read_from(Connection& connection) {
  if (connection.closing) return;
  try {
    const std::optional<std::string> bytes = receive(connection.socket);
    if (!bytes) return end_connection(connection);
    if (bytes->empty()) return;
    connection.in.append(*bytes);
    if (connection.rank != kStranger) connection.last_heard = Clock::now();
    while (!connection.closing) {
      const bool known = connection.rank != kStranger;
      const auto message = connection.in.next(known ? kLongestMessage : kLongestHello);
      if (!message) return;
      handle(connection, *message);
    }
  } catch (const Error&) {  // not a rank's words
    end_connection(connection);
  }
}

void RendezvousServer::handle(Connection& connection, const Message& message) {
  if (connection.rank == kStranger) {
    check(message.kind == MessageKind::hello, "the first message must be hello");
    return let_in(connection, message);
  }
  Member& member = members_[static_cast<size_t>(connection.rank)];
  switch (message.kind) {
    case MessageKind::alive:
      return note_progress(member, message.number);
    case MessageKind::set:
      return store(message);
    case MessageKind::get:
      return answer_get(connection, message);
    case MessageKind::failed:
      return lose(connection.rank, message.data, std::to_string(message.number));
    case MessageKind::leave:
      return member_left(member);
    default:
      fail("a rank must not send this kind of message");
  }
}

void RendezvousServer::let_in(Connection& connection, const Message& hello) {
  if (!same_secret(hello.data, rules_.token)) return refuse(connection, "the token is wrong");
  const int64_t rank = hello.number;
  if (hello.name != hello_name(rules_.size)) {
    return refuse(connection, "rank 0 speaks \"" + hello_name(rules_.size) + "\"; rank " +
                                  std::to_string(rank) + " \"" + hello.name + "\"");
  }
  if (rank < 0 || rank >= rules_.size) return refuse(connection, "there is no such rank");
  if (verdict_) return refuse(connection, "the run has ended: " + verdict_->data);
  Member& member = members_[static_cast<size_t>(rank)];
  if (member.joined) {
    return refuse(connection, "rank " + std::to_string(rank) +
                                  " has joined already: two processes were given this rank");
  }
  connection.rank = static_cast<int>(rank);
  connection.last_heard = Clock::now();
  member.joined = true;
  member.connection = &connection;
  complete_ =
      std::all_of(members_.begin(), members_.end(), [](const Member& m) { return m.joined; });
  if (complete_) send_to_all({MessageKind::welcome, 0, "", ""});
}

void RendezvousServer::store(const Message& message) {
  values_[message.name] = message.data;
  for (const Request& request : waiting_[message.name]) {
    Connection* connection = members_[static_cast<size_t>(request.rank)].connection;
    if (connection) {
      send_to(*connection, {MessageKind::value, request.number, "", message.data});
    }
  }
  waiting_.erase(message.name);
}

void RendezvousServer::answer_get(const Connection& connection, const Message& request) {
  Member& member = members_[static_cast<size_t>(connection.rank)];
  const auto found = values_.find(request.name);
  if (found == values_.end()) {
    waiting_[request.name].push_back({connection.rank, request.number});
  } else {
    send_to(*member.connection, {MessageKind::value, request.number, "", found->second});
  }
}

void RendezvousServer::note_progress(Member& member, int64_t begun) {
  if (begun != member.begun) member.behind_since.reset();
  member.begun = begun;
}

void RendezvousServer::member_left(Member& member) {
  member.left = true;
  const bool all =
      std::all_of(members_.begin(), members_.end(), [](const Member& m) { return m.left; });
  if (all && !verdict_) send_to_all({MessageKind::goodbye, 0, "", ""});
}

// --- what goes wrong -----------------------------------------------------------------------------

std::string RendezvousServer::missing_ranks() const {
  std::string ranks;
  int count = 0;
  constexpr int kMostNamed = 8;
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    if (members_[rank].joined || ++count > kMostNamed) continue;
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  }
  if (count > kMostNamed) ranks += text(" and ", count - kMostNamed, " more");
  return (count == 1 ? "rank " : "ranks ") + ranks;
}

void RendezvousServer::check_arrivals() {
  if (complete_ || verdict_ || Clock::now() < start_ + rules_.timeout) return;
  verdict_ = Message{MessageKind::refused, 0, "",
                     text(missing_ranks(), " of ", rules_.size, " did not arrive within ",
                          seconds(rules_.timeout), " s")};
  send_to_all(*verdict_);
}

// Silence, and collectives that others have begun long ago. Leaving counts as one more of them.
void RendezvousServer::check_members() {
  if (!complete_ || verdict_) return;
  const auto now = Clock::now();
  int64_t most = 0;
  for (const Member& m : members_) most = std::max(most, m.begun + (m.left ? 1 : 0));
  for (size_t i = 0; i < members_.size() && !verdict_; ++i) {
    Member& m = members_[i];
    const int rank = static_cast<int>(i);
    if (m.left) continue;
    if (m.begun == most) {
      m.behind_since.reset();
    } else if (!m.behind_since) {
      m.behind_since = now;
    }
    const auto limit = now - rules_.timeout;
    if (m.connection->last_heard < limit) {
      lose(rank, text("no sign of life for ", seconds(rules_.timeout), " s"), kNoExitCode);
    } else if (m.behind_since && *m.behind_since < limit) {
      lose(rank,
           text("stalled for ", seconds(rules_.timeout), " s after ", m.begun,
                " collectives while others went on"),
           kNoExitCode);
    }
  }
}

// The first loss is the cause of those that follow.
void RendezvousServer::lose(int rank, const std::string& reason, const std::string& exit_code) {
  if (verdict_) return;
  verdict_ = Message{MessageKind::lost, rank, exit_code, reason};
  send_to_all(*verdict_);
}

void RendezvousServer::end_connection(Connection& connection) {
  connection.closing = true;
  connection.out.clear();
  if (connection.rank == kStranger) return;
  Member& member = members_[static_cast<size_t>(connection.rank)];
  member.connection = nullptr;
  if (!complete_ && !verdict_) {  // it may be started once more
    member.joined = false;
  } else if (!member.left) {
    lose(connection.rank, "connection closed", kNoExitCode);
  }
}

void RendezvousServer::refuse(Connection& connection, const std::string& reason) {
  send_to(connection, {MessageKind::refused, 0, "", reason});
  connection.closing = true;
}

void RendezvousServer::drop_late_strangers() {
  const auto limit = Clock::now() - std::min(kPatienceWithStrangers, rules_.timeout / 2);
  for (const auto& c : connections_) {
    if (c->rank == kStranger && c->last_heard < limit) end_connection(*c);
  }
}

// --- what ranks are told -------------------------------------------------------------------------

void RendezvousServer::beat() {
  if (Clock::now() < next_beat_) return;
  next_beat_ = Clock::now() + heartbeat_interval(rules_.timeout);
  send_to_all({MessageKind::alive, 0, "", ""});
}

void RendezvousServer::send_to(Connection& connection, const Message& message) {
  connection.out += encode(message);
}

void RendezvousServer::send_to_all(const Message& message) {
  for (const Member& m : members_) {
    if (m.connection) send_to(*m.connection, message);
  }
}

void RendezvousServer::send_pending() {
  for (const auto& c : connections_) {
    const bool open = send_some(c->socket, c->out);
    if (!open && !c->closing) end_connection(*c);
    if (!open) c->out.clear();
  }
  std::erase_if(connections_, [](const auto& c) { return c->closing && c->out.empty(); });
}

}  // namespace xtrain
