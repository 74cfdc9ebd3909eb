#include "tools/generate_output.h"

#include <nlohmann/json.hpp>
#include <ostream>

namespace xtrain {

GenerateOutput::GenerateOutput(std::ostream& out, OutputForm form, bool echo,
                               const Vocabulary& vocabulary, const std::vector<TextLabel>& labels,
                               const std::vector<std::string>& stops)
    : out_(out), form_(form), echo_(echo), labels_(labels) {
  for (size_t i = 0; i < labels.size(); ++i)
    texts_.push_back({TextStream(vocabulary, stops), "", ""});
}

void GenerateOutput::add(Text& text, const std::string& piece) {
  text.shown += piece;
  text.waiting += piece;
}

bool GenerateOutput::on_token(int64_t i, int32_t id) {
  Text& text = texts_[i];
  add(text, text.stream.push(id));
  if (form_ == OutputForm::streamed) print_what_can();
  return !text.stream.stopped() && !out_.fail();  // nobody reads any more: an end for all
}

void GenerateOutput::on_end(int64_t i, Ending) {
  Text& text = texts_[i];
  add(text, text.stream.finish());
  text.complete = true;
  if (form_ == OutputForm::streamed) print_what_can();
}

void GenerateOutput::print_what_can() {
  for (; current_ < texts_.size(); ++current_) {
    Text& text = texts_[current_];
    if (!text.begun) {
      const TextLabel& label = labels_[current_];
      if (texts_.size() > 1) {
        out_ << "--- prompt " << label.prompt + 1 << ", sample " << label.sample + 1 << "\n";
      }
      if (echo_) out_ << label.text;
      text.begun = true;
    }
    out_ << text.waiting;
    text.waiting.clear();
    if (!text.complete) break;
    out_ << "\n";
  }
  out_.flush();
}

void GenerateOutput::finish(const Generation& generation) {
  for (size_t i = 0; i < texts_.size(); ++i) {
    if (!texts_[i].complete) on_end(static_cast<int64_t>(i), generation.texts[i].ending);
  }
  form_ == OutputForm::json ? print_json(generation) : print_what_can();
}

// Bytes that are not UTF-8 cannot be in JSON; the ids say them all.
void GenerateOutput::print_json(const Generation& generation) {
  using Json = nlohmann::ordered_json;
  for (size_t i = 0; i < texts_.size(); ++i) {
    const TextLabel& label = labels_[i];
    const Json json{
        {"prompt", label.text},           {"prompt_ids", label.ids},
        {"sample", label.sample},         {"text", texts_[i].shown},
        {"ids", generation.texts[i].ids}, {"ending", name_of(generation.texts[i].ending)}};
    out_ << json.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
  }
  out_.flush();
}

}  // namespace xtrain
