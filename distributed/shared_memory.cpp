#include "distributed/shared_memory.h"

#include <fcntl.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <random>
#include <string_view>

#include "core/error.h"

namespace xtrain {
namespace {

// Bytes that a rank may have under way. A bucket's parts fit, so that nobody waits to send them.
constexpr size_t kUnderWay = 1 << 20;
constexpr size_t kPage = 4096;
static_assert(std::atomic<uint64_t>::is_always_lock_free);

constexpr size_t whole_pages(size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

void check_system(bool holds, const char* what) {
  if (!holds) fail("shared memory: cannot ", what, ": ", std::strerror(errno));
}

// A lock of one byte, which goes with the open file it was set through.
struct flock lock_of(int rank) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

}  // namespace

struct alignas(64) SharedMemory::Bell {
  sem_t rings;
};

SharedMemory::SharedMemory(int ranks, const Place& place)
    : ranks_(ranks),
      piece_bytes_(whole_pages(kUnderWay / kPieces / static_cast<size_t>(std::max(1, ranks - 1)))),
      place_(place) {}

SharedMemory::SharedMemory(int ranks) : SharedMemory(ranks, Place{}) {
  std::random_device random;
  std::snprintf(place_.name.data(), place_.name.size(), "xtrain-%08x%08x%08x%08x", random(),
                random(), random(), random());
  descriptor_ = memfd_create(place_.name.data(), MFD_CLOEXEC);
  check_system(descriptor_ >= 0, "make it");
  std::snprintf(place_.path.data(), place_.path.size(), "/proc/%d/fd/%d", getpid(), descriptor_);
  check_system(ftruncate(descriptor_, static_cast<off_t>(bytes())) == 0, "set its size");
  map();
  for (int rank = 0; rank < ranks_; ++rank) sem_init(&bell(rank).rings, 1, 0);
  mark_presence(0);
}

// On another host, a process of the same number has other files, which must be left alone.
SharedMemory::SharedMemory(int ranks, int rank, const Place& place) : SharedMemory(ranks, place) {
  const std::string expected = text("/memfd:", place_.name.data(), " (deleted)");
  std::array<char, 128> found{};
  const ssize_t length = readlink(place_.path.data(), found.data(), found.size());
  check_system(length >= 0, "find it");
  check(std::string_view(found.data(), static_cast<size_t>(length)) == expected,
        "shared memory: ", place_.path.data(), " must be ", expected);
  descriptor_ = open(place_.path.data(), O_RDWR | O_CLOEXEC);
  check_system(descriptor_ >= 0, "open it");
  map();
  mark_presence(rank);
}

SharedMemory::~SharedMemory() {
  if (memory_) munmap(memory_, bytes());
  if (descriptor_ >= 0) close(descriptor_);
}

// Its bytes are zero at first, and so are the counts of the channels.
void SharedMemory::map() {
  void* const start = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  check_system(start != MAP_FAILED, "map it");
  memory_ = static_cast<std::byte*>(start);
}

size_t SharedMemory::channel_index(int from, int to) const {
  return static_cast<size_t>(from) * static_cast<size_t>(ranks_) + static_cast<size_t>(to);
}

size_t SharedMemory::channels_begin() const {
  return static_cast<size_t>(ranks_) * sizeof(Bell);
}

size_t SharedMemory::pieces_begin() const {
  return whole_pages(channels_begin() + channel_index(ranks_, 0) * sizeof(Channel));
}

size_t SharedMemory::bytes() const {
  return pieces_begin() + channel_index(ranks_, 0) * kPieces * piece_bytes_;
}

SharedMemory::Bell& SharedMemory::bell(int rank) const {
  return reinterpret_cast<Bell*>(memory_)[rank];
}

SharedMemory::Channel& SharedMemory::channel(int from, int to) const {
  std::byte* const begin = memory_ + channels_begin();
  return reinterpret_cast<Channel*>(begin)[channel_index(from, to)];
}

std::span<std::byte> SharedMemory::piece(int from, int to, uint64_t before) const {
  const size_t index = channel_index(from, to) * kPieces + before % kPieces;
  return {memory_ + pieces_begin() + index * piece_bytes_, piece_bytes_};
}

void SharedMemory::ring_bell(int rank) const {
  sem_post(&bell(rank).rings);
}

void SharedMemory::still_bell(int rank) const {
  while (sem_trywait(&bell(rank).rings) == 0) {
  }
}

bool SharedMemory::wait_for_bell(int rank, std::chrono::milliseconds time) const {
  timespec until{};
  clock_gettime(CLOCK_MONOTONIC, &until);
  const int64_t ns = until.tv_nsec + std::chrono::nanoseconds(time).count();
  until.tv_sec += ns / 1000000000;
  until.tv_nsec = ns % 1000000000;
  return sem_clockwait(&bell(rank).rings, CLOCK_MONOTONIC, &until) == 0;
}

// The system takes the lock away from who ends, whatever the end.
void SharedMemory::mark_presence(int rank) const {
  struct flock lock = lock_of(rank);
  check_system(fcntl(descriptor_, F_OFD_SETLK, &lock) == 0, "lock a part of it");
}

bool SharedMemory::has_left(int rank) const {
  struct flock lock = lock_of(rank);
  return fcntl(descriptor_, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

}  // namespace xtrain
