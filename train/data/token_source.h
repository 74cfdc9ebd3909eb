#pragma once
// A stream of token ids of known length. Everything that batches are cut from is one of these.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace xtrain {

class TokenSource {
 public:
  virtual ~TokenSource() = default;

  virtual int64_t size() const = 0;  // tokens

  // Fills `out` with the tokens from `offset` on; all of them must lie within the stream. Throws
  // InputError naming file, offset and id where an id lies outside the vocabulary.
  virtual void read(int64_t offset, std::span<int32_t> out) const = 0;

  // `targets` holds the tokens from `offset` on, as read() gives them. Those that are context only,
  // whose prediction does not count, become kIgnoreIndex. Without masks all count.
  virtual void mask_targets(int64_t /*offset*/, std::span<int32_t> /*targets*/) const {}

  virtual std::string name() const = 0;    // the file, or what stands for it: for errors
  virtual std::string reader() const = 0;  // how the stream is read: for the log

  // The mean information of a token in nats, where it is known by construction: no model can be
  // expected to reach a lower loss on tokens that it has not trained on.
  virtual std::optional<double> entropy_floor() const { return std::nullopt; }
};

// Throws unless [offset, offset + count) lies within the source.
void check_range(const TokenSource& source, int64_t offset, int64_t count);

// The parts one after the other. A window may span two parts: shards are cut anywhere, so their
// borders mean nothing. A part without tokens is refused by name.
class JoinedSource : public TokenSource {
 public:
  explicit JoinedSource(std::vector<std::shared_ptr<const TokenSource>> parts);
  int64_t size() const override { return ends_.back(); }
  void read(int64_t offset, std::span<int32_t> out) const override;
  void mask_targets(int64_t offset, std::span<int32_t> targets) const override;
  std::string name() const override;
  std::string reader() const override;  // those of all parts, each once

 private:
  // Calls use(part, offset in it, tokens) for the pieces of `tokens`, which lie at `offset`.
  template <class Use>
  void for_each_piece(int64_t offset, std::span<int32_t> tokens, const Use& use) const;

  std::vector<std::shared_ptr<const TokenSource>> parts_;
  std::vector<int64_t> ends_;  // ends_[i]: tokens in parts 0..i
};

// Tokens begin..end-1 of another source.
class SlicedSource : public TokenSource {
 public:
  SlicedSource(std::shared_ptr<const TokenSource> whole, int64_t begin, int64_t end);
  int64_t size() const override { return end_ - begin_; }
  void read(int64_t offset, std::span<int32_t> out) const override;
  void mask_targets(int64_t offset, std::span<int32_t> targets) const override;
  std::string name() const override;
  std::string reader() const override { return whole_->reader(); }

 private:
  std::shared_ptr<const TokenSource> whole_;
  int64_t begin_, end_;
};

}  // namespace xtrain
