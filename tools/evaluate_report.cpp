#include "tools/evaluate_report.h"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <ostream>

#include "core/error.h"

namespace xtrain {
namespace {

std::string fixed(double value, int digits = 4) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

// Perplexities of bad models have more digits than a column.
std::string perplexity_text(double value) {
  char text[64];
  std::snprintf(text, sizeof(text), value < 1e6 ? "%.4f" : "%.4e", value);
  return text;
}

class Table {
 public:
  explicit Table(std::ostream& out) : out_(out) {}

  template <class... Parts>
  void row(const std::string& name, const Parts&... parts) {
    out_ << name << std::string(name.size() < kWidth ? kWidth - name.size() : 1, ' ')
         << text(parts...) << "\n";
  }

 private:
  static constexpr size_t kWidth = 16;
  std::ostream& out_;
};

void print_corpus(Table& table, const CorpusReport& report) {
  table.row("data", report.data);
  table.row("read as", report.reader);
  table.row("windows", report.seq_len, " tokens, every ", report.stride);
  table.row("tokens", report.loss.tokens);
  if (report.loss.bytes) table.row("bytes", *report.loss.bytes);
  table.row("loss", fixed(report.loss.loss()), " nats a token");
  if (report.floor) table.row("floor", fixed(*report.floor), " nats a token");
  table.row("perplexity", perplexity_text(report.loss.perplexity()));
  if (const auto bits = report.loss.bits_per_byte()) table.row("bits per byte", fixed(*bits));
}

void print_multiple_choice(Table& table, const MultipleChoiceReport& report) {
  const MultipleChoiceScore& score = report.score;
  table.row("multiple choice", report.file);
  table.row("read as", report.reader);
  table.row("examples", score.examples);
  table.row("accuracy", fixed(score.accuracy()), "  by the sum over a choice's tokens");
  table.row("accuracy_norm", fixed(score.accuracy_norm()), "  by the mean over them");
  table.row("chance", fixed(score.chance()));
  if (score.cut > 0) {
    table.row("note", "the contexts of ", score.cut, " examples are longer than ", report.seq_len,
              " tokens and were cut at the front");
  }
}

nlohmann::ordered_json number(std::optional<double> value) {
  if (!value || !std::isfinite(*value)) return nullptr;
  return *value;
}

}  // namespace

void print_table(std::ostream& out, const EvalReport& report) {
  Table table(out);
  table.row("model", report.model);
  table.row("", report.model_type, ", ", report.parameters, " parameters, ", report.dtype, ", ",
            report.attention, " attention, on ", report.device);
  table.row("vocabulary", report.vocabulary, ", ", report.vocab_size, " ids",
            report.padding > 0 ? text("; ", report.padding,
                                      " more of the model are padding and take no probability")
                               : "");
  if (report.corpus) print_corpus(table, *report.corpus);
  if (report.multiple_choice) print_multiple_choice(table, *report.multiple_choice);
}

void print_json(std::ostream& out, const EvalReport& report) {
  nlohmann::ordered_json json{{"model", report.model},           {"model_type", report.model_type},
                              {"parameters", report.parameters}, {"dtype", report.dtype},
                              {"attention", report.attention},   {"device", report.device},
                              {"vocabulary", report.vocabulary}, {"vocab_size", report.vocab_size},
                              {"padding", report.padding}};
  if (const auto& corpus = report.corpus) {
    const CorpusLoss& loss = corpus->loss;
    json["data"] = corpus->data;
    json["data_reader"] = corpus->reader;
    json["seq_len"] = corpus->seq_len;
    json["stride"] = corpus->stride;
    json["tokens"] = loss.tokens;
    json["bytes"] = loss.bytes ? nlohmann::ordered_json(*loss.bytes) : nullptr;
    json["loss"] = number(loss.loss());
    json["perplexity"] = number(loss.perplexity());
    json["bits_per_byte"] = number(loss.bits_per_byte());
    json["floor"] = number(corpus->floor);
  }
  if (const auto& choice = report.multiple_choice) {
    json["multiple_choice"] = choice->file;
    json["multiple_choice_reader"] = choice->reader;
    json["examples"] = choice->score.examples;
    json["accuracy"] = choice->score.accuracy();
    json["accuracy_norm"] = choice->score.accuracy_norm();
    json["chance"] = choice->score.chance();
    json["cut"] = choice->score.cut;
  }
  // Names of files need not be UTF-8.
  out << json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
}

}  // namespace xtrain
