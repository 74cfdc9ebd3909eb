#pragma once
// What `evaluate` has found, for people and for programs.

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

#include "train/eval/corpus_loss.h"
#include "train/eval/multiple_choice.h"

namespace xtrain {

struct CorpusReport {
  std::string data, reader;
  int64_t seq_len = 0, stride = 0;
  CorpusLoss loss;
  std::optional<double> floor;  // see TokenSource::entropy_floor
};

struct MultipleChoiceReport {
  std::string file, reader;
  int64_t seq_len = 0;
  MultipleChoiceScore score;
};

struct EvalReport {
  std::string model, model_type, dtype, attention, device, vocabulary;
  int64_t parameters = 0;
  int64_t vocab_size = 0;  // ids that count,
  int64_t padding = 0;     // and those of the model that do not
  std::optional<CorpusReport> corpus;
  std::optional<MultipleChoiceReport> multiple_choice;
};

void print_table(std::ostream& out, const EvalReport& report);
// One line; keys of what was not computed are left out, numbers that do not exist are null.
void print_json(std::ostream& out, const EvalReport& report);

}  // namespace xtrain
