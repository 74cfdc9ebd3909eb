#pragma once
// Ranks that are threads of one process.

#include <memory>

#include "distributed/communicator.h"

namespace xtrain {

// A group of `size` ranks. Each communicator is for one thread, and they may outlive the group. A
// rank whose communicator is destroyed has left: others that wait for it then fail.
class LocalGroup {
 public:
  explicit LocalGroup(int size);
  std::unique_ptr<Communicator> communicator(int rank) const;  // one for each rank

 private:
  struct Meeting;
  class LocalExchange;
  std::shared_ptr<Meeting> meeting_;
};

}  // namespace xtrain
