#include "distributed/rendezvous.h"

#include <atomic>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "core/error.h"
#include "distributed/message.h"
#include "support/catch.h"

using namespace xtrain;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

// Catch2's assertions are for one thread: ranks say what is wrong by an Error.

constexpr auto kPatience = milliseconds(20000);  // for what must not happen

// Where a test's ranks meet.
struct Meeting {
  int size = 1;
  milliseconds timeout = kPatience;
  std::string token = "secret";
  Socket listener = listen_on({"127.0.0.1", 0});
  MasterAddress master{"127.0.0.1", port_of(listener)};

  RendezvousOptions options(int rank) {
    RendezvousOptions o{rank, size, master, token, timeout, Socket()};
    if (rank == 0) o.listener = std::move(listener);
    return o;
  }
};

std::string outcome_of(const std::function<std::string()>& body) {
  try {
    return body();
  } catch (const Error& error) {
    return std::string("error: ") + error.what();
  }
}

// What body(rendezvous) returns in a thread of each of the ranks, or the error.
std::vector<std::string> meet(Meeting& meeting, const std::vector<int>& ranks,
                              const std::function<std::string(Rendezvous&)>& body) {
  std::vector<std::string> outcomes(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i, options = meeting.options(ranks[i])]() mutable {
      outcomes[i] = outcome_of([&] {
        Rendezvous rendezvous(std::move(options));
        return body(rendezvous);
      });
    });
  }
  for (std::thread& t : threads) t.join();
  return outcomes;
}

std::string leave_well(Rendezvous& rendezvous) {
  rendezvous.leave();
  return "left";
}

using Outcomes = std::vector<std::string>;

// Somebody who knows the address.
Socket stranger_at(const Meeting& meeting) {
  return connect_to(meeting.master, steady_clock::now() + kPatience);
}

void say(const Socket& socket, const std::string& bytes) {
  check(send_all(socket, bytes, steady_clock::now() + kPatience), "nobody listens any more");
}

// All that comes until the other side ends the connection, which it must.
std::string heard_until_the_end(const Socket& socket) {
  std::string heard;
  while (wait_readable(socket, kPatience)) {
    const auto bytes = receive(socket);
    if (!bytes) return heard;
    heard += *bytes;
  }
  FAIL("the connection was not ended");
  return heard;
}

Message hello(int rank, int size, const std::string& token) {
  return {MessageKind::hello, rank, "xtrain rendezvous 1 for " + std::to_string(size) + " ranks",
          token};
}

}  // namespace

TEST_CASE("four ranks meet, share a store and leave together", "[distributed]") {
  Meeting meeting{4};
  const auto outcomes = meet(meeting, {3, 1, 0, 2}, [](Rendezvous& r) {
    const auto all = r.exchange("square", std::to_string(r.rank() * r.rank()));
    std::string joined;
    for (const std::string& value : all) joined += value + " ";
    check(r.own_address() == "127.0.0.1", "own address: ", r.own_address());
    r.leave();
    return joined;
  });
  CHECK(outcomes == Outcomes(4, "0 1 4 9 "));
}

TEST_CASE("a lone rank meets itself", "[distributed]") {
  Meeting meeting{1};
  CHECK(meet(meeting, {0}, leave_well) == Outcomes{"left"});
}

TEST_CASE("the store keeps any bytes, waits for keys and says which one did not come",
          "[distributed]") {
  Meeting meeting{2};
  const auto outcomes = meet(meeting, {0, 1}, [](Rendezvous& r) {
    Bytes bytes(100000);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 % 256);
    if (r.rank() == 0) {
      const std::string late =
          outcome_of([&] { return std::to_string(r.get("never", milliseconds(50)).size()); });
      check(late == "error: no rank has set \"never\" within 0.05 s", late);
      std::this_thread::sleep_for(milliseconds(50));
      r.set("late", bytes);
      r.set("", {});
    }
    check(r.get("late", kPatience) == bytes, "not the bytes that were set");
    check(r.get("", kPatience).empty(), "not the bytes that were set");
    const std::string too_long = outcome_of([&] {
      r.set("long", Bytes(2 << 20));
      return std::string();
    });
    check(too_long.find("at most 1048576 bytes") != std::string::npos, too_long);
    r.leave();
    return std::string("left");
  });
  CHECK(outcomes == Outcomes(2, "left"));
}

TEST_CASE("who does not know the token cannot join, and harms nobody", "[distributed]") {
  Meeting meeting{2};
  RendezvousOptions wrong = meeting.options(1);
  wrong.token = "guess!";
  Outcomes outcomes;
  std::thread ranks([&] { outcomes = meet(meeting, {0}, leave_well); });
  const std::string refused = outcome_of([&] {
    Rendezvous r(std::move(wrong));
    return std::string("joined");
  });
  CHECK(refused == "error: rank 1 cannot join the run: the token is wrong");
  CHECK(meet(meeting, {1}, leave_well) == Outcomes{"left"});
  ranks.join();
  CHECK(outcomes == Outcomes{"left"});
}

TEST_CASE("strangers, garbage and messages that are too long are dropped without harm",
          "[distributed]") {
  Meeting meeting{2};
  Outcomes first;
  std::thread rank_0([&] { first = meet(meeting, {0}, leave_well); });

  const Socket silent = stranger_at(meeting);
  const Socket slow = stranger_at(meeting);
  say(slow, encode(hello(1, 2, "secret")).substr(0, 9));
  std::string noise;
  for (int i = 0; i < 5000; ++i) noise += static_cast<char>(i * i * 31 % 251);
  const std::string long_message = std::string("\xff\xff\xff\x7f", 4) + noise;
  const std::string name_beyond_end =
      std::string("\x0d\0\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff", 17);
  const std::string no_hello = encode({MessageKind::set, 1, "key", "value"});
  const std::string unknown_kind = std::string("\x0d\0\0\0\x63\0\0\0\0\0\0\0\0\0\0\0\0", 17);
  const std::string shorter_than_any = std::string("\x01\0\0\0\0", 5);
  const std::string long_token = encode(hello(1, 2, std::string(600, 's')));
  for (const std::string& bytes :
       {noise, long_message, name_beyond_end, no_hello, unknown_kind, shorter_than_any, long_token,
        std::string("GET / HTTP/1.1\r\n\r\n")}) {
    const Socket stranger = stranger_at(meeting);
    (void)send_all(stranger, bytes, steady_clock::now() + kPatience);
    CHECK(heard_until_the_end(stranger) == "");
  }
  const struct {
    Message message;
    const char* answer;
  } refused[] = {
      {hello(0, 2, "secret"), "rank 0 has joined already: two processes were given this rank"},
      {hello(2, 2, "secret"), "there is no such rank"},
      {hello(-1, 2, "secret"), "there is no such rank"},
      {hello(1, 3, "secret"), "rank 1 \"xtrain rendezvous 1 for 3 ranks\""},
      {hello(1, 2, ""), "the token is wrong"},
  };
  for (const auto& c : refused) {
    const Socket stranger = stranger_at(meeting);
    say(stranger, encode(c.message));
    CHECK(heard_until_the_end(stranger).find(c.answer) != std::string::npos);
  }
  CHECK(meet(meeting, {1}, leave_well) == Outcomes{"left"});
  rank_0.join();
  CHECK(first == Outcomes{"left"});
}

TEST_CASE("more silent strangers than are let wait do not keep a rank out", "[distributed]") {
  Meeting meeting{2, milliseconds(2000)};
  Outcomes first;
  std::thread rank_0([&] { first = meet(meeting, {0}, leave_well); });
  std::vector<Socket> strangers;
  for (int i = 0; i < 100; ++i) strangers.push_back(stranger_at(meeting));
  CHECK(meet(meeting, {1}, leave_well) == Outcomes{"left"});
  rank_0.join();
  CHECK(first == Outcomes{"left"});
}

TEST_CASE("ranks that do not arrive are named in time", "[distributed]") {
  Meeting meeting{4, milliseconds(300)};
  const auto start = steady_clock::now();
  const auto outcomes = meet(meeting, {0, 2}, leave_well);
  CHECK(steady_clock::now() - start < milliseconds(3000));
  for (size_t i = 0; i < 2; ++i) {
    CHECK(outcomes[i] == "error: rank " + std::to_string(2 * i) +
                             " cannot join the run: ranks 1, 3 of 4 did not arrive within 0.3 s");
  }
}

TEST_CASE("two processes of one rank: the second one is refused", "[distributed]") {
  Meeting meeting{2};
  std::atomic<int> met{0};
  std::atomic<bool> tried{false};
  Outcomes first;
  std::thread ranks([&] {
    first = meet(meeting, {0, 1}, [&](Rendezvous& r) {
      ++met;
      while (!tried) std::this_thread::sleep_for(milliseconds(1));
      return leave_well(r);
    });
  });
  while (met < 2) std::this_thread::sleep_for(milliseconds(1));
  const std::string refused = outcome_of([&] {
    Rendezvous twin(meeting.options(1));
    return std::string("joined");
  });
  tried = true;
  ranks.join();
  CHECK(refused ==
        "error: rank 1 cannot join the run: rank 1 has joined already: two processes were given "
        "this rank");
  CHECK(first == Outcomes(2, "left"));
}

TEST_CASE("rank 0 says who may have its port", "[distributed]") {
  const Socket taken = listen_on({"127.0.0.1", 0});
  const int port = port_of(taken);
  const std::string refused = outcome_of([&] {
    Rendezvous r({0, 2, {"127.0.0.1", port}, "secret", milliseconds(300), Socket()});
    return std::string("joined");
  });
  CHECK(refused.find("rank 0 cannot listen on 127.0.0.1:" + std::to_string(port) +
                     ": Address already in use") != std::string::npos);
  CHECK(outcome_of([] {
          listen_on({"192.0.2.1", 0});
          return std::string();
        }).find("the address must be one of this host") != std::string::npos);
}

TEST_CASE("a stranger that holds the port, or nobody there, is an error in time", "[distributed]") {
  Meeting meeting{2, milliseconds(300)};
  const auto join = [&] {
    return outcome_of([&] {
      Rendezvous r({1, 2, meeting.master, "secret", milliseconds(300), Socket()});
      return std::string("joined");
    });
  };
  const std::string at = "127.0.0.1:" + std::to_string(meeting.master.port);
  const auto start = steady_clock::now();
  CHECK(join().find("rank 1 cannot join the run at " + at) != std::string::npos);  // silence
  std::thread talker([&] {
    while (!wait_readable(meeting.listener, kPatience)) {
    }
    // The first one in the queue is the connection of the attempt before.
    for (int i = 0; i < 2; ++i) {
      while (true) {
        if (const auto connection = accept_from(meeting.listener)) {
          (void)send_all(*connection, "220 mail.example.org ESMTP\r\n",
                         steady_clock::now() + kPatience);
          std::this_thread::sleep_for(milliseconds(100));
          break;
        }
        std::this_thread::sleep_for(milliseconds(5));
      }
    }
  });
  CHECK(join().find("rank 1 cannot join the run at " + at + ": rank 0 was lost: not a rank") !=
        std::string::npos);
  talker.join();
  meeting.listener = Socket();
  CHECK(join().find("rank 0 must listen on " + at + "; no connection in time") !=
        std::string::npos);
  CHECK(steady_clock::now() - start < milliseconds(10000));
}

TEST_CASE("rank 0 listens on the given address alone", "[distributed]") {
  const Meeting meeting{1};
  const std::string elsewhere = outcome_of([&] {
    connect_to({"127.0.0.2", meeting.master.port}, steady_clock::now() + milliseconds(100));
    return std::string("connected");
  });
  CHECK(elsewhere.find("Connection refused") != std::string::npos);
}

// --- losses --------------------------------------------------------------------------------------

namespace {

// What the ranks of a run are told when one of them does something.
struct Told {
  Outcomes outcomes;
  std::atomic<int> calls{0};
};

// `act` on one rank; the others wait until they are told of a loss.
void tell_of(Meeting& meeting, int acting, const std::function<std::string(Rendezvous&)>& act,
             Told& told) {
  std::vector<int> ranks;
  for (int r = 0; r < meeting.size; ++r) ranks.push_back(r);
  const auto watches = [](int rank) { return "watches/" + std::to_string(rank); };
  told.outcomes = meet(meeting, ranks, [&](Rendezvous& r) {
    if (r.rank() == acting) {
      for (const int other : ranks) {
        if (other != acting) r.get(watches(other), kPatience);
      }
      return act(r);
    }
    std::promise<std::string> heard;
    r.watch([] { return 0; },
            [&](const LostRank& lost) {
              ++told.calls;
              heard.set_value(text(lost.message(), ", exit code ", lost.exit_code));
            });
    r.set(watches(r.rank()), {});
    std::future<std::string> future = heard.get_future();
    check(future.wait_for(kPatience) == std::future_status::ready, "heard of no loss");
    return future.get();
  });
}

}  // namespace

TEST_CASE("a connection that breaks is told to all others, whoever breaks it", "[distributed]") {
  for (const int lost : {0, 1, 2}) {
    Meeting meeting{3};
    Told told;
    tell_of(
        meeting, lost, [](Rendezvous&) { return std::string("gone"); }, told);
    for (int rank = 0; rank < 3; ++rank) {
      const std::string expected =
          "rank " + std::to_string(lost) + " was lost: connection closed, exit code 1";
      CHECK(told.outcomes[static_cast<size_t>(rank)] == (rank == lost ? "gone" : expected));
    }
    CHECK(told.calls == 2);
  }
}

TEST_CASE("a reported failure reaches all ranks with its reason, the first one counts",
          "[distributed]") {
  for (const int failing : {0, 2}) {
    Meeting meeting{3};
    Told told;
    tell_of(
        meeting, failing,
        [](Rendezvous& r) {
          const LostRank first = r.report_failure("the disk is full", 2);
          const LostRank second = r.report_failure("and more", 1);
          check(second.message() == first.message(), "the second failure counts");
          return first.message() + ", exit code " + std::to_string(first.exit_code);
        },
        told);
    const std::string expected =
        "rank " + std::to_string(failing) + " was lost: the disk is full, exit code 2";
    CHECK(told.outcomes == Outcomes(3, expected));
  }
}

TEST_CASE("the last words of rank 0 reach a rank that is talking itself", "[distributed]") {
  Meeting meeting{2};
  Outcomes outcomes;
  std::thread rank_0([&] {
    outcomes = meet(meeting, {0}, [](Rendezvous& r) {
      return r.report_failure("the disk is full", 1).message();
    });
  });
  const Socket rank_1 = stranger_at(meeting);
  say(rank_1, encode(hello(1, 2, "secret")));
  std::atomic<bool> heard{false};
  std::thread talker([&] {
    const std::string word = encode({MessageKind::alive, 0, "", ""});
    while (!heard && send_all(rank_1, word, steady_clock::now() + kPatience)) {
    }
  });
  std::this_thread::sleep_for(milliseconds(200));
  CHECK(heard_until_the_end(rank_1).find("the disk is full") != std::string::npos);
  heard = true;
  talker.join();
  rank_0.join();
  CHECK(outcomes == Outcomes{"rank 0 was lost: the disk is full"});
}

TEST_CASE("a wait for a key ends when a rank is lost", "[distributed]") {
  Meeting meeting{2};
  const auto outcomes = meet(meeting, {0, 1}, [](Rendezvous& r) {
    if (r.rank() == 1) return std::string("gone");
    r.get("never", kPatience);
    return std::string("got it");
  });
  CHECK(outcomes == Outcomes{"error: rank 1 was lost: connection closed", "gone"});
}

TEST_CASE("a rank that lags behind in its collectives is named", "[distributed]") {
  for (const int stalled : {0, 1}) {
    Meeting meeting{3, milliseconds(600)};
    std::atomic<int64_t> begun{5};
    const auto outcomes = meet(meeting, {0, 1, 2}, [&](Rendezvous& r) {
      const bool stalls = r.rank() == stalled;
      r.watch([&, stalls] { return stalls ? 3 : begun.load(); }, [](const LostRank&) {});
      const auto loss = r.wait_for_loss(kPatience);
      return loss ? loss->message() : "no loss";
    });
    CHECK(outcomes == Outcomes(3, "rank " + std::to_string(stalled) +
                                      " was lost: stalled for 0.6 s after 3 collectives while "
                                      "others went on"));
  }
}

TEST_CASE("ranks that are slow together, or behind but moving, are not lost", "[distributed]") {
  Meeting meeting{2, milliseconds(800)};
  const auto outcomes = meet(meeting, {0, 1}, [&](Rendezvous& r) {
    std::atomic<int64_t> begun{r.rank() == 0 ? 1000 : 0};
    r.watch([&] { return begun.load(); }, [](const LostRank&) {});
    for (int i = 0; i < 24; ++i) {
      std::this_thread::sleep_for(milliseconds(50));
      if (r.rank() == 1) ++begun;
    }
    begun = 1000;
    std::this_thread::sleep_for(milliseconds(1200));
    r.stop_watching();
    return r.loss() ? r.loss()->message() : leave_well(r);
  });
  CHECK(outcomes == Outcomes(2, "left"));
}

TEST_CASE("a rank that does not leave when others have is named", "[distributed]") {
  Meeting meeting{2, milliseconds(600)};
  const auto outcomes = meet(meeting, {0, 1}, [&](Rendezvous& r) {
    if (r.rank() == 0) return leave_well(r);
    const auto loss = r.wait_for_loss(kPatience);
    return loss ? loss->message() : "no loss";
  });
  const std::string message =
      "rank 1 was lost: stalled for 0.6 s after 0 collectives while others went on";
  CHECK(outcomes == Outcomes{"error: " + message, message});
}

TEST_CASE("a rank that says nothing any more is named", "[distributed]") {
  Meeting meeting{2, milliseconds(300)};
  const Socket mute = stranger_at(meeting);
  say(mute, encode(hello(1, 2, "secret")));
  const auto outcomes = meet(meeting, {0}, [](Rendezvous& r) {
    const auto loss = r.wait_for_loss(kPatience);
    return loss ? loss->message() : "no loss";
  });
  CHECK(outcomes == Outcomes{"rank 1 was lost: no sign of life for 0.3 s"});
}

TEST_CASE("a rank 0 that says nothing any more is named by the others", "[distributed]") {
  const Meeting meeting{2};
  std::thread mute([&] {
    while (!wait_readable(meeting.listener, kPatience)) {
    }
    const auto connection = accept_from(meeting.listener);
    say(*connection, encode({MessageKind::welcome, 0, "", ""}));
    std::this_thread::sleep_for(milliseconds(1000));
  });
  Rendezvous r({1, 2, meeting.master, "secret", milliseconds(300), Socket()});
  const auto loss = r.wait_for_loss(kPatience);
  REQUIRE(loss);
  CHECK(loss->message() == "rank 0 was lost: no sign of life for 0.3 s");
  mute.join();
}
