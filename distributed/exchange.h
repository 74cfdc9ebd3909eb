#pragma once
// Bytes between the ranks of a run: all that collective operations on a CPU are made of.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace xtrain {

class Exchange {
 public:
  using Outgoing = std::vector<std::span<const std::byte>>;
  using Incoming = std::vector<std::span<std::byte>>;

  virtual ~Exchange() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // All ranks call this together. Element r of `out` goes to rank r and element r of `in` comes
  // from there; ranks must agree on the sizes. Empty elements do not travel, and those of the own
  // rank must be empty. Returns when all of `in` has come and `out` may be reused. Error naming the
  // rank at fault.
  virtual void run(const Outgoing& out, const Incoming& in) = 0;

  // From any thread: the exchange under way and all later ones are errors with the reason.
  virtual void abort(const std::string& reason) = 0;
};

}  // namespace xtrain
