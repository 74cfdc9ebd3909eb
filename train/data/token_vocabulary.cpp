#include "train/data/token_vocabulary.h"

#include <filesystem>
#include <set>
#include <string>

#include "core/error.h"
#include "train/data/token_folder.h"
#include "train/data/token_meta.h"

namespace xtrain {
namespace {

std::optional<Vocabulary> vocabulary_beside(std::span<const MappedFile> files) {
  std::string chosen;
  for (const MappedFile& file : files) {
    const std::string path = tokenizer_beside(file.path());
    if (path.empty() || path == chosen) continue;
    check_input(chosen.empty() || MappedFile(path).text() == MappedFile(chosen).text(), file.path(),
                ": was made with another tokenizer than ", files.front().path(), " (", path,
                " and ", chosen, ")");
    if (chosen.empty()) chosen = path;
  }
  if (chosen.empty()) return std::nullopt;
  return Vocabulary::load(chosen);
}

}  // namespace

std::optional<Vocabulary> token_vocabulary(std::span<const MappedFile> files) {
  if (auto beside = vocabulary_beside(files)) return beside;
  return declared_vocabulary(files);
}

void check_token_vocabulary(std::span<const MappedFile* const> files, const Vocabulary& of_model) {
  if (of_model.kind() == Vocabulary::Kind::ids) return;
  std::set<std::filesystem::path> folders;
  for (const MappedFile* file : files) {
    if (!folders.insert(std::filesystem::path(file->path()).parent_path()).second) continue;
    const std::optional<Vocabulary> own = token_vocabulary({file, 1});
    const bool says = own && own->kind() != Vocabulary::Kind::ids;
    check_input(!says || own->to_json() == of_model.to_json(), file->path(),
                ": its ids are those of another tokenizer than the model's; tokenize the text with "
                "the model's own");
  }
}

}  // namespace xtrain
