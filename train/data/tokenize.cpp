#include "train/data/tokenize.h"

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/random.h"
#include "train/checksum.h"
#include "train/data/document_encoder.h"
#include "train/data/ordered_pipeline.h"
#include "train/data/utf8.h"

namespace xtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct Inputs {
  std::vector<InputFile> files;  // those of training, then those of validation
  int64_t train_files;
  int64_t bytes = 0;  // of all files whose size is known
  bool known_size = true;
};

bool lies_in(const fs::path& inner, const fs::path& folder) {
  const fs::path relative = inner.lexically_relative(folder);
  return !relative.empty() && *relative.begin() != "..";
}

// Output among the inputs would be read as text by the next run.
void check_apart(const std::string& folder, const std::vector<std::string>& inputs) {
  std::error_code ignored;
  const fs::path out = fs::weakly_canonical(folder, ignored);
  for (const std::string& input : inputs) {
    if (input == "-") continue;
    const fs::path path = fs::weakly_canonical(input, ignored);
    check_input(!lies_in(path, out) && !(fs::is_directory(path, ignored) && lies_in(out, path)),
                folder, ": the output folder and the input ", input,
                " must not lie one in the other");
  }
}

Inputs list_inputs(const TokenizeOptions& options) {
  check_input(!options.inputs.empty(), "no inputs; name files, folders, patterns or -");
  std::vector<std::string> all = options.inputs;
  const size_t train_files = list_input_files(all).size();
  all.insert(all.end(), options.val_inputs.begin(), options.val_inputs.end());
  if (!options.out_dir.empty()) check_apart(options.out_dir, all);
  Inputs inputs{list_input_files(all), static_cast<int64_t>(train_files)};
  for (const InputFile& file : inputs.files) {
    inputs.bytes += file.bytes;
    inputs.known_size = inputs.known_size && !file.stream;
  }
  return inputs;
}

Json to_json(const InputFile& file) {
  Json json{{"path", file.path}};
  if (!file.stream) json.update({{"bytes", file.bytes}, {"modified_ns", file.modified_ns}});
  return json;
}

// All that the token files depend on.
std::string plan_of(const TokenizerFile& tokenizer, const TokenizeOptions& options,
                    const Inputs& inputs) {
  auto train = Json::array(), val = Json::array();
  for (size_t i = 0; i < inputs.files.size(); ++i) {
    (static_cast<int64_t>(i) < inputs.train_files ? train : val)
        .push_back(to_json(inputs.files[i]));
  }
  return Json{
      {"format", name_of(options.layout)},
      {"name", options.name},
      {"shard_tokens", options.shard_tokens},
      {"tokenizer_file", tokenizer.name},
      {"tokenizer_xxh3", checksum_of(std::as_bytes(std::span<const char>(tokenizer.content)))},
      {"vocabulary", tokenizer.vocabulary->kind_name()},
      {"vocab_size", tokenizer.vocabulary->size()},
      {"end_token", options.end_token},
      {"markers", options.markers == Markers::tokens},
      {"jsonl_field", options.documents.jsonl_field},
      {"split_on", options.documents.split_on},
      {"val_documents", options.val_documents},
      {"val_fraction", options.val_fraction},
      {"seed", options.seed},
      {"input", train},
      {"val_input", val}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

void check_options(const TokenizerFile& tokenizer, const TokenizeOptions& options) {
  const int64_t vocab_size = tokenizer.vocabulary->size();
  check_input(options.out_dir.empty() || vocab_size <= largest_vocabulary(options.layout),
              "format ", name_of(options.layout), " holds vocabularies of at most ",
              largest_vocabulary(options.layout), " tokens; the tokenizer has ", vocab_size);
  check_input(!options.name.empty() && options.name.find('/') == std::string::npos &&
                  valid_utf8_length(options.name) == options.name.size(),
              "the name of shards must be valid UTF-8 without a slash; got \"", options.name, '"');
  check_input(options.end_token < vocab_size, "the end token must lie in the vocabulary");
  check_input(options.val_fraction >= 0 && options.val_fraction < 1,
              "the share of validation must lie in [0, 1); got ", options.val_fraction);
  check_input(options.val_documents >= 0, "the number of validation documents must be at least 0; ",
              "got ", options.val_documents);
  const int ways =
      (options.val_documents > 0) + (options.val_fraction > 0) + !options.val_inputs.empty();
  check_input(ways <= 1, "validation is either a fraction, a number of documents or inputs of its ",
              "own; give one of them");
  check_input(options.save_seconds >= 0,
              "the seconds between saved states must be at least 0; got ", options.save_seconds);
  check_input(options.threads >= 1, "threads must be at least 1; got ", options.threads);
}

struct Item {
  DocumentBatch text;
  EncodedBatch encoded;
};

class TokenizeRun {
 public:
  TokenizeRun(const TokenizerFile& tokenizer, const TokenizeOptions& options);
  TokenizeResult run(const std::atomic<bool>& stop,
                     const std::function<void(const TokenizeProgress&)>& on_progress);

 private:
  struct Stream {
    StreamState state;
    std::optional<ShardWriter> writer;
  };

  void open_output();
  bool is_validation(const ReadPosition& from) const;
  void write(const Item& item);
  void add(Stream& stream, std::span<const int32_t> ids);
  bool should_save() const;
  void save();
  void finish();
  TokenizeProgress progress() const;
  TokenizeState state() const { return {position_, train_.state, val_.state}; }

  const TokenizerFile& tokenizer_;
  const TokenizeOptions& options_;
  Inputs inputs_;
  DocumentReader reader_;
  std::optional<TokenFolder> folder_;
  Stream train_, val_;
  ReadPosition position_;
  TokenizeResult result_;
  Clock::time_point saved_at_ = Clock::now();
};

TokenizeRun::TokenizeRun(const TokenizerFile& tokenizer, const TokenizeOptions& options)
    : tokenizer_(tokenizer),
      options_(options),
      inputs_(list_inputs(options)),
      reader_(inputs_.files, options.documents,
              TextCutter(*tokenizer.vocabulary, options.markers)) {
  check_options(tokenizer, options);
  if (!options.out_dir.empty()) open_output();
}

void TokenizeRun::open_output() {
  const auto make = [&](Stream& stream, const char* split) {
    const bool raw = options_.layout == TokenLayout::raw_u16;
    stream.writer.emplace(options_.out_dir, raw ? split : options_.name + '_' + split,
                          options_.layout, options_.shard_tokens);
  };
  make(train_, "train");
  make(val_, "val");
  folder_.emplace(options_.out_dir, plan_of(tokenizer_, options_, inputs_), tokenizer_.name,
                  tokenizer_.content);
  const auto found = folder_->open(options_.overwrite);
  if (!found) return;
  result_.already_complete = folder_->is_complete();
  position_ = found->position;
  result_.resumed_bytes = position_.bytes;
  for (auto [stream, state] : {std::pair(&train_, &found->train), std::pair(&val_, &found->val)}) {
    stream->state = *state;
    if (!result_.already_complete) stream->writer->restore(state->shards);
  }
  if (!result_.already_complete) reader_.seek(position_);
}

bool TokenizeRun::is_validation(const ReadPosition& from) const {
  if (!options_.val_inputs.empty()) return from.file >= inputs_.train_files;
  if (options_.val_documents > 0) return from.document < options_.val_documents;
  return in_validation(options_.seed, from.document, options_.val_fraction);
}

void TokenizeRun::add(Stream& stream, std::span<const int32_t> ids) {
  stream.state.tokens += static_cast<int64_t>(ids.size());
  if (stream.writer) stream.writer->add(ids);
}

void TokenizeRun::write(const Item& item) {
  const std::span<const int32_t> ids(item.encoded.ids);
  const std::span<const int32_t> end_token(&options_.end_token, options_.end_token >= 0 ? 1 : 0);
  const bool behind = ends_documents(options_.layout);
  size_t begin = 0;
  for (size_t i = 0; i < item.text.parts.size(); ++i) {
    const DocumentPart& part = item.text.parts[i];
    const EncodedPart& encoded = item.encoded.parts[i];
    Stream& stream = is_validation(part.from) ? val_ : train_;
    if (!part.from.inside) ++stream.state.documents;
    if (!part.from.inside && !behind) add(stream, end_token);
    add(stream, ids.subspan(begin, encoded.ids_end - begin));
    if (part.last && behind) add(stream, end_token);
    stream.state.text_bytes += encoded.text_bytes;
    begin = encoded.ids_end;
  }
  position_ = item.text.after;
}

void TokenizeRun::save() {
  if (!folder_) return;
  train_.state.shards = train_.writer->save();
  val_.state.shards = val_.writer->save();
  folder_->save(state());
  saved_at_ = Clock::now();
}

void TokenizeRun::finish() {
  check_input(train_.state.text_bytes + val_.state.text_bytes > 0, "the inputs hold no text");
  check_input(train_.state.documents > 0, "no document is left for training: all ",
              val_.state.documents, " are for validation");
  if (!folder_) return;
  train_.state.shards = train_.writer->finish();
  val_.state.shards = val_.writer->finish();
  folder_->complete(state());
}

TokenizeProgress TokenizeRun::progress() const {
  return {position_.bytes, inputs_.bytes, inputs_.known_size,
          train_.state.tokens + val_.state.tokens};
}

bool TokenizeRun::should_save() const {
  if (!folder_) return false;
  const std::chrono::duration<double> since = Clock::now() - saved_at_;
  return since.count() >= options_.save_seconds ||
         train_.writer->finished_shards() > train_.state.shards.finished.size() ||
         val_.writer->finished_shards() > val_.state.shards.finished.size();
}

TokenizeResult TokenizeRun::run(const std::atomic<bool>& stop,
                                const std::function<void(const TokenizeProgress&)>& on_progress) {
  if (!result_.already_complete) {
    std::vector<DocumentEncoder> encoders;
    for (int t = 0; t < options_.threads; ++t) {
      encoders.emplace_back(tokenizer_.vocabulary, options_.markers, options_.documents.jsonl_field,
                            reader_);
    }
    const auto consume = [&](Item& item) {
      write(item);
      result_.stopped = stop;
      if (result_.stopped || should_save()) save();
      on_progress(progress());
      return !result_.stopped;
    };
    try {
      OrderedPipeline<Item>(options_.threads)
          .run([&](Item& item) { return reader_.next(item.text); },
               [&](Item& item, int t) {
                 encoders[static_cast<size_t>(t)].encode(item.text, item.encoded);
               },
               consume);
      if (!result_.stopped) finish();
    } catch (const InputError&) {
      if (folder_) folder_->remove();
      throw;
    }
  }
  result_.train = train_.state;
  result_.val = val_.state;
  result_.bytes = position_.bytes;
  return result_;
}

}  // namespace

bool in_validation(uint64_t seed, int64_t document, double fraction) {
  if (fraction <= 0) return false;
  const Philox4 random = philox4x32(seed, static_cast<uint64_t>(document), 0);
  return uniform_double(random.word[0], random.word[1]) < fraction;
}

TokenizeResult tokenize(const TokenizerFile& tokenizer, const TokenizeOptions& options,
                        const std::atomic<bool>& stop,
                        const std::function<void(const TokenizeProgress&)>& on_progress) {
  return TokenizeRun(tokenizer, options).run(stop, on_progress);
}

TokenizerFile tokenizer_of_characters(const TokenizeOptions& options) {
  const Inputs inputs = list_inputs(options);
  for (const InputFile& file : inputs.files) {
    check_input(!file.stream, file.path, ": characters are found by reading the inputs twice, ",
                "which this one cannot be; write it to a file first");
  }
  CharacterSet characters;
  DocumentReader reader(inputs.files, options.documents,
                        TextCutter(Vocabulary::chars(characters), Markers::plain_text));
  const std::string field = options.documents.jsonl_field;
  DocumentBatch batch;
  while (reader.next(batch)) {
    for (const DocumentPart& part : batch.parts) {
      const std::string_view text = batch.text_of(part);
      const std::string where = reader.where(part.from);
      if (part.json) {
        characters.add(text_of_json(text, field, where), where);
      } else {
        characters.add(text, where);
      }
    }
  }
  check_input(!characters.code_points().empty(), "the inputs hold no text");
  return describe_tokenizer(Vocabulary::chars(characters));
}

}  // namespace xtrain
