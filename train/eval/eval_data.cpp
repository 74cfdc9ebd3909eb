#include "train/eval/eval_data.h"

#include <utility>

#include "core/error.h"
#include "core/mapped_file.h"
#include "train/data/open_data.h"
#include "train/data/text_source.h"
#include "train/data/token_file.h"
#include "train/data/token_vocabulary.h"

namespace xtrain {
namespace {

using SourcePtr = std::shared_ptr<const TokenSource>;

void check_has_text(const std::string& name, const Vocabulary& vocabulary) {
  check_input(vocabulary.kind() != Vocabulary::Kind::ids, name,
              ": is text, and the model has no tokenizer to encode it with; give files of tokens");
}

SourcePtr open_stories(const EvalData& data, const Vocabulary& vocabulary) {
  const SourcePtr bytes = validation_stories(data.stories_seed, data.stories);
  check_has_text(bytes->name(), vocabulary);
  if (vocabulary.kind() == Vocabulary::Kind::bytes) return bytes;
  std::vector<int32_t> ids(static_cast<size_t>(bytes->size()));
  bytes->read(0, ids);
  return std::make_shared<EncodedSource>(bytes->name(), Vocabulary::bytes().decode(ids),
                                         vocabulary);
}

bool is_tokens(const MappedFile& file, const std::string& format) {
  return format == "auto" ? looks_like_tokens(file) : format != "text";
}

SourcePtr open_file(MappedFile file, const std::string& format, const Vocabulary& vocabulary) {
  if (is_tokens(file, format)) {
    return std::make_shared<TokenFile>(std::move(file), format, vocabulary.size());
  }
  check_has_text(file.path(), vocabulary);
  if (vocabulary.kind() == Vocabulary::Kind::bytes) {
    return std::make_shared<ByteSource>(std::move(file));
  }
  return std::make_shared<EncodedSource>(file.path(), file.text(), vocabulary);
}

}  // namespace

SourcePtr open_eval_data(const EvalData& data, const Vocabulary& vocabulary) {
  check_input(data.format == "auto" || data.format == "text" || data.format == "raw_u16" ||
                  data.format == "headered",
              "format must be auto, text, raw_u16 or headered; got \"", data.format, "\"");
  if (data.files.empty()) return open_stories(data, vocabulary);
  std::vector<MappedFile> files = open_data_files(data.files);
  std::vector<const MappedFile*> tokens;
  for (const MappedFile& file : files) {
    if (is_tokens(file, data.format)) tokens.push_back(&file);
  }
  check_token_vocabulary(tokens, vocabulary);
  std::vector<SourcePtr> parts;
  for (MappedFile& file : files) {
    parts.push_back(open_file(std::move(file), data.format, vocabulary));
  }
  return parts.size() == 1 ? parts.front() : std::make_shared<JoinedSource>(std::move(parts));
}

}  // namespace xtrain
