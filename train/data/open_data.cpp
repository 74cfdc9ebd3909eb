#include "train/data/open_data.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/mapped_file.h"
#include "train/data/input_files.h"
#include "train/data/story_source.h"
#include "train/data/text_source.h"
#include "train/data/token_file.h"
#include "train/data/token_vocabulary.h"

namespace xtrain {
namespace {

using SourcePtr = std::shared_ptr<const TokenSource>;

constexpr double kUsualValFraction = 0.1;
// Validation stories are numbered far beyond any training story, so that the two never share one
// and that validation stays the same when the number of training stories changes.
constexpr int64_t kFirstValStory = int64_t{1} << 40;

// The source that "auto" stands for. All files must agree.
std::string source_kind(const DataConfig& config, const std::vector<MappedFile>& files,
                        const Vocabulary* saved) {
  if (config.source != "auto") return config.source;
  if (files.empty()) return "stories";
  const bool tokens = looks_like_tokens(files.front());
  for (const MappedFile& file : files) {
    check_input(looks_like_tokens(file) == tokens, "data files must be all text or all tokens; ",
                files.front().path(), " is ", tokens ? "tokens" : "text", ", ", file.path(), " is ",
                tokens ? "text" : "tokens");
  }
  if (tokens || config.format != "auto") return "tokens";
  return saved && saved->kind() == Vocabulary::Kind::chars ? "chars" : "text";
}

Vocabulary chars_of(const std::vector<MappedFile>& files) {
  CharacterSet characters;
  for (const MappedFile& file : files) characters.add(file.text(), file.path());
  return Vocabulary::chars(characters);
}

Vocabulary choose_vocabulary(const std::string& kind, std::optional<Vocabulary> saved,
                             const std::vector<MappedFile>& files, int64_t vocab_size) {
  if (saved) {
    const bool fits = kind == "tokens" || kind == saved->kind_name() ||
                      (saved->kind() == Vocabulary::Kind::bytes && kind != "chars") ||
                      (saved->kind() == Vocabulary::Kind::bpe && kind == "text");
    check_input(fits, "the vocabulary is of ", saved->kind_name(),
                ", which does not fit data.source \"", kind, "\"");
    return *std::move(saved);
  }
  if (kind == "chars") return chars_of(files);
  if (kind != "tokens") return Vocabulary::bytes();
  // A bare number of ids may leave out markers, which the model's own then covers.
  auto declared = token_vocabulary(files);
  const bool ids = declared && declared->kind() == Vocabulary::Kind::ids;
  if (declared && (!ids || declared->size() > vocab_size)) return *std::move(declared);
  check_input(vocab_size > 0, files.front().path(), ": token files do not say how large their ",
              "vocabulary is; give the model's vocab_size or a data.vocab_file");
  return Vocabulary::ids(vocab_size);
}

SourcePtr open_file(MappedFile file, const std::string& kind, const DataConfig& config,
                    const Vocabulary& vocabulary) {
  const bool encoded = kind == "text" && vocabulary.kind() == Vocabulary::Kind::bpe;
  if (kind == "chars" || encoded) {
    return std::make_shared<EncodedSource>(file.path(), file.text(), vocabulary);
  }
  if (kind == "text") return std::make_shared<ByteSource>(std::move(file));
  return std::make_shared<TokenFile>(std::move(file), config.format, vocabulary.size());
}

void check_first_tokens(const TokenSource& source) {
  constexpr int64_t kTokens = int64_t{1} << 28, kChunk = 1 << 16;
  std::vector<int32_t> chunk(kChunk);
  const int64_t end = std::min(source.size(), kTokens);
  for (int64_t offset = 0; offset < end; offset += kChunk) {
    const size_t count = static_cast<size_t>(std::min(kChunk, end - offset));
    source.read(offset, std::span(chunk).first(count));
  }
}

Data open_stories(const DataConfig& config, double val_fraction) {
  check_input(
      config.train_files.empty() && config.val_files.empty(),
      "data.source \"stories\" reads no files; remove train_files and val_files or set source");
  Data data;
  data.train = std::make_shared<StorySource>(config.stories_seed, 0, config.stories_count);
  const double held_out = val_fraction * static_cast<double>(config.stories_count);
  if (held_out > 0) {
    data.validation =
        validation_stories(config.stories_seed, static_cast<int64_t>(std::ceil(held_out)));
  }
  return data;
}

// `files` are those of training, then those of validation.
Data open_file_data(const DataConfig& config, const std::string& kind, double val_fraction,
                    std::vector<MappedFile> files, size_t train_files,
                    const Vocabulary& vocabulary) {
  std::vector<SourcePtr> train, validation;
  for (size_t i = 0; i < files.size(); ++i) {
    auto& part = i < train_files ? train : validation;
    part.push_back(open_file(std::move(files[i]), kind, config, vocabulary));
  }
  // A lone source is not wrapped: an empty one is then reported with the tokens that a window
  // needs.
  const auto join = [](std::vector<SourcePtr>& parts) -> SourcePtr {
    return parts.size() == 1 ? parts.front() : std::make_shared<JoinedSource>(std::move(parts));
  };
  Data data;
  data.train = join(train);
  if (kind == "tokens") check_first_tokens(*data.train);
  if (!validation.empty()) {
    data.validation = join(validation);
    if (kind == "tokens") check_first_tokens(*data.validation);
  } else if (val_fraction > 0) {
    const SourcePtr whole = data.train;
    const auto cut = static_cast<int64_t>(static_cast<double>(whole->size()) * (1 - val_fraction));
    data.train = std::make_shared<SlicedSource>(whole, 0, cut);
    data.validation = std::make_shared<SlicedSource>(whole, cut, whole->size());
  }
  return data;
}

}  // namespace

Data open_data(const DataConfig& config, int64_t vocab_size, const Vocabulary* of_model) {
  check_input(config.val_fraction == -1 || (config.val_fraction >= 0 && config.val_fraction < 1),
              "data.val_fraction must lie in [0, 1), or be -1 for the default; got ",
              config.val_fraction);
  std::vector<MappedFile> files = open_data_files(config.train_files);
  const size_t train_files = files.size();
  for (MappedFile& file : open_data_files(config.val_files)) files.push_back(std::move(file));
  std::optional<Vocabulary> saved;
  if (of_model) saved = *of_model;
  if (!config.vocab_file.empty()) saved = Vocabulary::load(config.vocab_file);
  check_input(!of_model || saved->to_json() == of_model->to_json(), config.vocab_file,
              ": must be the vocabulary of the model that the run starts from; leave "
              "data.vocab_file out");

  const std::string kind = source_kind(config, files, saved ? &*saved : nullptr);
  check_input(kind == "stories" || kind == "text" || kind == "chars" || kind == "tokens",
              "data.source must be auto, stories, text, chars or tokens; got \"", kind, "\"");
  check_input(kind == "stories" || train_files > 0, "data.source \"", kind,
              "\" needs files; data.train_files is empty");
  check_input(kind == "tokens" || config.format == "auto",
              "data.format applies to token files; data.source is \"", kind, "\"");
  if (of_model && kind == "tokens") {
    std::vector<const MappedFile*> pointers;
    for (const MappedFile& file : files) pointers.push_back(&file);
    check_token_vocabulary(pointers, *of_model);
  }
  const double fraction = config.val_fraction >= 0 ? config.val_fraction
                          : kind == "tokens"       ? 0
                                                   : kUsualValFraction;
  const Vocabulary vocabulary = choose_vocabulary(kind, std::move(saved), files, vocab_size);
  check_input(vocab_size == 0 || vocabulary.size() <= vocab_size,
              "the model's vocab_size must be at ", "least that of the data, ", vocabulary.size(),
              " (", vocabulary.kind_name(), "); got ", vocab_size);
  Data data = kind == "stories" ? open_stories(config, fraction)
                                : open_file_data(config, kind, fraction, std::move(files),
                                                 train_files, vocabulary);
  data.vocabulary = std::make_shared<Vocabulary>(vocabulary);
  return data;
}

std::shared_ptr<const TokenSource> validation_stories(uint64_t seed, int64_t count) {
  return std::make_shared<StorySource>(seed, kFirstValStory, count);
}

std::vector<MappedFile> open_data_files(const std::vector<std::string>& patterns) {
  std::vector<MappedFile> files;
  for (const std::string& path : expand_patterns(patterns)) files.emplace_back(path);
  return files;
}

}  // namespace xtrain
