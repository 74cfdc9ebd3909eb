#pragma once
// What `generate` prints on standard output.

#include <iosfwd>
#include <string>
#include <vector>

#include "train/generate/generator.h"
#include "train/generate/text_stream.h"

namespace xtrain {

// How a text is announced, and what it continues.
struct TextLabel {
  int64_t prompt = 0, sample = 0;  // from 0
  std::string text;                // the prompt's
  std::vector<int32_t> ids;
};

enum class OutputForm : uint8_t { streamed, at_end, json };

// Texts come in their order. The first that is not complete is shown as it grows, and those behind
// it are kept until it is.
class GenerateOutput final : public GenerationListener {
 public:
  // The vocabulary and the labels must outlive this. With `echo` each prompt is printed first.
  GenerateOutput(std::ostream& out, OutputForm form, bool echo, const Vocabulary& vocabulary,
                 const std::vector<TextLabel>& labels, const std::vector<std::string>& stops);

  bool on_token(int64_t text, int32_t id) override;
  void on_end(int64_t text, Ending ending) override;
  // When nothing more comes, also for texts that were interrupted.
  void finish(const Generation& generation);

 private:
  struct Text {
    TextStream stream;
    std::string shown, waiting;  // all of it, and what is not printed yet
    bool begun = false, complete = false;
  };
  void add(Text& text, const std::string& piece);
  void print_what_can();
  void print_json(const Generation& generation);

  std::ostream& out_;
  const OutputForm form_;
  const bool echo_;
  const std::vector<TextLabel>& labels_;
  std::vector<Text> texts_;
  size_t current_ = 0;  // the text that is printed next
};

}  // namespace xtrain
