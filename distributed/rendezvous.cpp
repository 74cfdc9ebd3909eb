#include "distributed/rendezvous.h"

#include <algorithm>

#include "core/error.h"
#include "distributed/rendezvous_server.h"

namespace xtrain {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Rank 0 tells who is missing and who is lost; the others wait a little longer for its words.
constexpr auto kForTheVerdict = milliseconds(3000);

double seconds(milliseconds time) {
  return static_cast<double>(time.count()) / 1000.0;
}

int exit_code_from(const std::string& text) {
  return text == "2" ? 2 : 1;
}

}  // namespace

std::string LostRank::message() const {
  return text("rank ", rank, " was lost: ", reason);
}

Rendezvous::Rendezvous(RendezvousOptions options) : options_(std::move(options)) {
  const auto deadline = steady_clock::now() + options_.timeout;
  if (options_.rank == 0) {
    if (!options_.listener.is_open()) options_.listener = listen_on(options_.master);
    options_.master.port = port_of(options_.listener);
    server_ = std::make_unique<RendezvousServer>(
        std::move(options_.listener),
        RendezvousRules{options_.size, options_.token, options_.timeout});
  }
  socket_ = connect_to(options_.master, deadline);
  send({MessageKind::hello, options_.rank, hello_name(options_.size), options_.token});
  last_heard_ = next_heartbeat_ = steady_clock::now();
  listener_ = std::thread([this] { listen(); });
  try {
    join();
  } catch (...) {
    stop_listening();
    throw;
  }
}

Rendezvous::~Rendezvous() {
  stop_listening();
}

void Rendezvous::stop_listening() {
  ending_ = true;
  socket_.shut_down();
  listener_.join();
}

void Rendezvous::join() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, options_.timeout + kForTheVerdict,
                    [this] { return welcome_ || !refusal_.empty() || loss_; });
  check(refusal_.empty(), "rank ", options_.rank, " cannot join the run: ", refusal_);
  check(welcome_ || !loss_, "rank ", options_.rank, " cannot join the run at ",
        options_.master.host, ":", options_.master.port, ": ", loss_ ? loss_->message() : "");
  check(welcome_, "rank ", options_.rank, " cannot join the run: no rank 0 answers at ",
        options_.master.host, ":", options_.master.port, " within ", seconds(options_.timeout),
        " s; another program may have that port");
}

// --- the store -----------------------------------------------------------------------------------

void Rendezvous::check_not_lost(const std::unique_lock<std::mutex>&) const {
  check(!loss_, loss_ ? loss_->message() : "");
}

void Rendezvous::set(const std::string& key, std::span<const std::byte> value) {
  const auto* characters = reinterpret_cast<const char*>(value.data());
  send({MessageKind::set, 0, key, std::string(characters, value.size())});
}

Bytes Rendezvous::get(const std::string& key, milliseconds timeout) {
  std::unique_lock lock(mutex_);
  check_not_lost(lock);
  check(awaited_ < 0, "a rank must ask for one key at a time");
  awaited_ = ++requests_;
  const Message request{MessageKind::get, awaited_, key, ""};
  lock.unlock();
  send(request);
  lock.lock();
  changed_.wait_for(lock, timeout, [this] { return answer_ || loss_; });
  awaited_ = -1;
  const std::optional<std::string> answer = std::exchange(answer_, std::nullopt);
  if (!answer) check_not_lost(lock);
  check(answer.has_value(), "no rank has set \"", key, "\" within ", seconds(timeout), " s");
  const auto* bytes = reinterpret_cast<const std::byte*>(answer->data());
  return {bytes, bytes + answer->size()};
}

std::vector<std::string> Rendezvous::exchange(const std::string& key, const std::string& own) {
  const auto of_rank = [&](int rank) { return key + "/" + std::to_string(rank); };
  set(of_rank(rank()), std::as_bytes(std::span(own)));
  std::vector<std::string> all;
  for (int r = 0; r < size(); ++r) {
    const Bytes value = get(of_rank(r), options_.timeout + kForTheVerdict);
    all.emplace_back(reinterpret_cast<const char*>(value.data()), value.size());
  }
  return all;
}

// --- losses --------------------------------------------------------------------------------------

void Rendezvous::watch(std::function<int64_t()> begun,
                       std::function<void(const LostRank&)> on_loss) {
  const std::lock_guard calling(calling_);
  begun_ = std::move(begun);
  if (const std::optional<LostRank> earlier = loss()) {
    on_loss(*earlier);
  } else {
    on_loss_ = std::move(on_loss);
  }
}

void Rendezvous::stop_watching() {
  const std::lock_guard calling(calling_);
  begun_ = nullptr;
  on_loss_ = nullptr;
}

std::optional<LostRank> Rendezvous::loss() const {
  const std::lock_guard lock(mutex_);
  return loss_;
}

std::optional<LostRank> Rendezvous::wait_for_loss(milliseconds time) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [this] { return loss_.has_value(); });
  return loss_;
}

LostRank Rendezvous::report_failure(const std::string& reason, int exit_code) {
  constexpr size_t kLongestReason = 2000;
  try {
    send({MessageKind::failed, exit_code, "", reason.substr(0, kLongestReason)});
  } catch (const Error&) {  // then the loss of rank 0 is what there is to tell
  }
  const std::optional<LostRank> verdict = wait_for_loss(kForTheVerdict);
  return verdict ? *verdict : LostRank{rank(), reason, exit_code};
}

void Rendezvous::leave() {
  send({MessageKind::leave, 0, "", ""});
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return goodbye_ || loss_; });
  if (!goodbye_) check_not_lost(lock);
}

void Rendezvous::note_loss(const LostRank& loss) {
  {
    const std::lock_guard lock(mutex_);
    if (loss_ || goodbye_) return;
    loss_ = loss;
  }
  changed_.notify_all();
  const std::lock_guard calling(calling_);
  if (on_loss_) on_loss_(loss);
  on_loss_ = nullptr;
}

// --- the listening thread ------------------------------------------------------------------------

bool Rendezvous::is_over() const {
  const std::lock_guard lock(mutex_);
  return goodbye_ || loss_;
}

void Rendezvous::listen() {
  while (!ending_ && !is_over()) {
    if (wait_readable(socket_, heartbeat_interval(options_.timeout))) read_messages();
    check_silence();
    send_heartbeat();
  }
}

void Rendezvous::read_messages() {
  try {
    const std::optional<std::string> bytes = receive(socket_);
    if (!bytes && ending_) return;
    if (!bytes) return note_loss({0, "connection closed", 1});
    last_heard_ = steady_clock::now();
    reader_.append(*bytes);
    while (const auto message = reader_.next(kLongestMessage)) handle(*message);
  } catch (const Error& error) {
    note_loss({0, std::string("not a rank of this run: ") + error.what(), 1});
  }
}

void Rendezvous::handle(const Message& message) {
  switch (message.kind) {
    case MessageKind::alive:
      return;
    case MessageKind::value:
      return answer(message);
    case MessageKind::lost:
      return note_loss(
          {static_cast<int>(message.number), message.data, exit_code_from(message.name)});
    case MessageKind::welcome:
    case MessageKind::goodbye:
    case MessageKind::refused: {
      const std::lock_guard lock(mutex_);
      welcome_ = welcome_ || message.kind == MessageKind::welcome;
      goodbye_ = goodbye_ || message.kind == MessageKind::goodbye;
      if (message.kind == MessageKind::refused) refusal_ = message.data;
      changed_.notify_all();
      return;
    }
    default:
      fail("rank 0 must not send this kind of message");
  }
}

void Rendezvous::answer(const Message& message) {
  const std::lock_guard lock(mutex_);
  if (message.number != awaited_) return;  // too late
  answer_ = message.data;
  changed_.notify_all();
}

void Rendezvous::check_silence() {
  if (steady_clock::now() > last_heard_ + options_.timeout) {
    note_loss({0, text("no sign of life for ", seconds(options_.timeout), " s"), 1});
  }
}

void Rendezvous::send_heartbeat() {
  if (steady_clock::now() < next_heartbeat_) return;
  next_heartbeat_ = steady_clock::now() + heartbeat_interval(options_.timeout);
  try {
    send({MessageKind::alive, collectives_begun(), "", ""});
  } catch (const Error&) {
    note_loss({0, "connection closed", 1});
  }
}

int64_t Rendezvous::collectives_begun() {
  const std::lock_guard calling(calling_);
  return begun_ ? begun_() : 0;
}

void Rendezvous::send(const Message& message) {
  const std::lock_guard lock(sending_);
  const bool sent = send_all(socket_, encode(message), steady_clock::now() + options_.timeout);
  check(sent, "rank 0 was lost: connection closed");
}

}  // namespace xtrain
