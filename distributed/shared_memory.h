#pragma once
// Memory that the ranks of one host map: between each two of them, in each direction, a channel of
// a few pieces that go round, and for each rank a bell that others ring.

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace xtrain {

class SharedMemory {
 public:
  static constexpr size_t kPieces = 8;  // of a channel

  // Written by its sender, but for `emptied`. A piece is full from the moment it is counted in
  // `filled` to that in which it is counted in `emptied`.
  struct Channel {
    alignas(64) std::atomic<uint64_t> filled;
    alignas(64) std::atomic<uint64_t> emptied;                // by the receiver
    alignas(64) std::array<uint64_t, kPieces> message_bytes;  // of that which a piece is part of
  };

  // How another process of this host finds the memory: as an open file of the one that made it.
  struct Place {
    std::array<char, 48> path{}, name{};
  };

  // Makes the memory, as rank 0, or finds it, as another one. Error when the system refuses, or
  // when something else is at the place.
  explicit SharedMemory(int ranks);
  SharedMemory(int ranks, int rank, const Place& place);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  const Place& place() const { return place_; }
  Channel& channel(int from, int to) const;
  // The one that is full, or to be filled, when so many before it have been counted.
  std::span<std::byte> piece(int from, int to, uint64_t before) const;

  void ring_bell(int rank) const;
  // Whatever it has rung for until then.
  void still_bell(int rank) const;
  // False when nobody has rung for so long.
  bool wait_for_bell(int rank, std::chrono::milliseconds time) const;

  // Whether the rank, which has had the memory, has let go of it or ended.
  bool has_left(int rank) const;

 private:
  struct Bell;
  SharedMemory(int ranks, const Place& place);
  void map();
  void mark_presence(int rank) const;
  Bell& bell(int rank) const;
  size_t channel_index(int from, int to) const;
  size_t channels_begin() const;
  size_t pieces_begin() const;
  size_t bytes() const;

  const int ranks_;
  const size_t piece_bytes_;
  Place place_;
  int descriptor_ = -1;
  std::byte* memory_ = nullptr;
};

}  // namespace xtrain
