#pragma once
// The text of tokens as they come: nothing of a stop string is ever shown, nor part of a character.

#include <string>
#include <string_view>
#include <vector>

#include "train/data/utf8.h"
#include "train/data/vocabulary.h"

namespace xtrain {

// Hands on text that comes in pieces up to the first of some strings, which may span pieces. What
// may yet become one of them is held back.
class StopStrings {
 public:
  // InputError for an empty one.
  explicit StopStrings(std::vector<std::string> strings);

  // What can be shown once `piece` has come; nothing any more behind a stop string.
  std::string push(std::string_view piece);
  // What was held back, when no more comes.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> strings_;
  std::string held_;
  bool stopped_ = false;
};

class TextStream {
 public:
  // The vocabulary must outlive this.
  TextStream(const Vocabulary& vocabulary, std::vector<std::string> stop_strings)
      : vocabulary_(vocabulary), stops_(std::move(stop_strings)) {}

  // What can be shown once the token has come.
  std::string push(int32_t id);
  // The rest; where the text ends within a character, the bytes that there are of it.
  std::string finish();
  bool stopped() const { return stops_.stopped(); }

 private:
  const Vocabulary& vocabulary_;
  StopStrings stops_;
  Utf8Stream characters_;
};

}  // namespace xtrain
