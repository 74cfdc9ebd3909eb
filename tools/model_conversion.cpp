#include "tools/model_conversion.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "core/atomic_folder.h"
#include "core/config_writer.h"
#include "core/error.h"
#include "core/json_values.h"
#include "core/mapped_file.h"
#include "model/hf/exported_config.h"
#include "model/hf/layout_writer.h"
#include "model/model_folder.h"
#include "train/checkpoint.h"
#include "train/data/exported_tokenizer.h"
#include "train/data/model_vocabulary.h"

namespace xtrain {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

constexpr const char* kConfig = "config.json";
constexpr const char* kGeneration = "generation_config.json";

// Files that say how text becomes ids and how it is generated, beside the tokenizer itself.
const Names kSideFiles{kGeneration,         "tokenizer_config.json", "special_tokens_map.json",
                       "added_tokens.json", "chat_template.jinja",   "chat_template.json"};
const Names kTokenizerFiles{"tokenizer.json", "vocab.json", "merges.txt", "tokenizer.model"};

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

void copy_files(const fs::path& from, const Names& names, const AtomicFolder& to) {
  for (const std::string& name : names) {
    if (!is_file(from / name)) continue;
    to.write(name, std::string(MappedFile((from / name).string()).text()));
  }
}

void write_tensors(const AtomicFolder& out, std::vector<TensorToWrite> tensors,
                   const ConversionOptions& options) {
  for (TensorToWrite& tensor : tensors) {
    if (!options.before_piece) break;
    tensor.write = [write = tensor.write, &options](const TensorToWrite::Put& put) {
      write([&](std::span<const std::byte> bytes) {
        options.before_piece();
        put(bytes);
      });
    };
  }
  write_tensor_files(out.path(), std::move(tensors), options.max_shard_bytes);
}

// A Hugging Face folder keeps its tokenizer, of whatever kind, so that none need be read.
ModelVocabulary vocabulary_to_export(const ModelFolder& model) {
  const int64_t vocab_size = model.config().vocab_size;
  return model.is_hugging_face() ? ModelVocabulary{Vocabulary::ids(vocab_size), ""}
                                 : model_vocabulary(model.path(), vocab_size);
}

// The config without the rows that stand for no token, unless they are wanted.
ModelConfig without_padding(const ModelFolder& model, const ModelVocabulary& found,
                            const ConversionOptions& options, Notes& notes) {
  ModelConfig config = model.config();
  const int64_t tokens = found.vocabulary.size();
  if (found.file.empty() || options.keep_padding) return config;
  if (tokens == config.vocab_size) return config;
  notes.push_back(text("the vocabulary has ", tokens, " tokens and the model ", config.vocab_size,
                       " rows for them; the last ", config.vocab_size - tokens,
                       " are padding and are left out"));
  config.vocab_size = tokens;
  return config;
}

void write_tokenizer(const ModelFolder& model, const ModelVocabulary& found,
                     const AtomicFolder& out) {
  if (!model.is_hugging_face()) {
    const int64_t length = model.config().max_position_embeddings;
    for (const auto& [name, content] : exported_tokenizer(found.vocabulary, length)) {
      if (!kSideFiles.contains(name) || !is_file(fs::path(model.path()) / name)) {
        out.write(name, content);
      }
    }
  } else {
    copy_files(model.path(), kTokenizerFiles, out);
  }
  copy_files(model.path(), kSideFiles, out);
}

SpecialIds special_ids_of(const ModelFolder& model, const ModelVocabulary& found) {
  SpecialIds ids = read_special_ids(model.path());
  const std::optional<int64_t> end = end_of_text_id(found.vocabulary);
  if (ids.end.empty() && end) ids.end = {*end};
  return ids;
}

// The small files of a folder, without what describes tensors or a run.
Names files_beside_tensors(const std::string& folder) {
  const Names kinds{".json", ".txt", ".jinja", ".md", ".model", ""};
  const Names left_out{kTensorIndex, kConfig, "state.json", "manifest.json"};
  Names names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool is_index = name.ends_with(".index.json");
    if (is_file(entry.path()) && kinds.contains(entry.path().extension().string()) && !is_index &&
        !left_out.contains(name) && !name.starts_with('.')) {
      names.insert(name);
    }
  }
  return names;
}

// A config with its dtype, where it gives one, replaced.
std::string recast_config(const std::string& path, std::optional<ElementType> dtype) {
  const MappedFile file(path);
  if (!dtype) return std::string(file.text());
  auto json = nlohmann::ordered_json::parse(shallow_json(file.text(), path), nullptr, false);
  if (!json.is_object()) return std::string(file.text());
  bool changed = false;
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (!json.contains(key)) continue;
    json[key] = torch_name(*dtype);
    changed = true;
  }
  return changed ? json.dump(2) + "\n" : std::string(file.text());
}

// --- describing ----------------------------------------------------------------------------------

std::string sizes_text(const std::vector<int64_t>& shape) {
  std::string all;
  for (const int64_t size : shape) all += text(all.empty() ? "" : " x ", size);
  return all.empty() ? "scalar" : all;
}

std::string tensor_lines(const std::deque<SafetensorsFile>& files) {
  std::string lines;
  int64_t bytes = 0, count = 0;
  for (const SafetensorsFile& file : files) {
    lines += text("\n", fs::path(file.path()).filename().string(), "\n");
    for (const SafetensorsEntry& entry : file.entries()) {
      lines += text("  ", entry.name, "  ", entry.dtype, "  ", sizes_text(entry.shape), "  ",
                    entry.bytes.size(), " bytes\n");
      bytes += static_cast<int64_t>(entry.bytes.size());
      ++count;
    }
  }
  return lines + text("\n", count, " tensors, ", bytes, " bytes\n");
}

}  // namespace

Notes export_model(const std::string& in, const std::string& out,
                   const ConversionOptions& options) {
  const ModelFolder model(model_path(in));
  const ModelVocabulary found = vocabulary_to_export(model);
  Notes notes = model.notes();
  const ModelConfig config = without_padding(model, found, options, notes);
  check_hugging_face_config(config);
  model.check_tied_head();
  const SpecialIds ids = special_ids_of(model, found);
  AtomicFolder folder(out);
  auto tensors = tensors_in_layout(model, hugging_face_layout(config), options.dtype);
  const ElementType dtype = *element_type_from_name(tensors.front().info.dtype);
  write_tensors(folder, std::move(tensors), options);
  folder.write(kConfig, hugging_face_config_json(config, ids, dtype));
  folder.write(kGeneration, generation_config_json(ids));
  write_tokenizer(model, found, folder);
  const bool has_tokenizer =
      std::any_of(kTokenizerFiles.begin(), kTokenizerFiles.end(),
                  [&](const std::string& name) { return is_file(folder.file(name)); });
  if (!has_tokenizer) notes.push_back(text(in, " holds no vocabulary; OUT has no tokenizer"));
  folder.commit();
  return notes;
}

Notes import_model(const std::string& in, const std::string& out,
                   const ConversionOptions& options) {
  const ModelFolder model(model_path(in));
  const ModelVocabulary found = model_vocabulary(model.path(), model.config().vocab_size);
  Notes notes = model.notes();
  model.check_tied_head();
  AtomicFolder folder(out);
  write_tensors(folder, tensors_in_layout(model, own_layout(model.config()), options.dtype),
                options);
  ModelConfig config = model.config();
  folder.write(kConfig, config_to_json({{"model", config_fields(config)}}));
  copy_files(model.path(), kSideFiles, folder);
  const SpecialIds ids = read_special_ids(model.path());
  if (!is_file(fs::path(folder.path()) / kGeneration) && ids != SpecialIds{}) {
    folder.write(kGeneration, generation_config_json(ids));
  }
  if (!found.file.empty()) folder.write("vocabulary.json", found.vocabulary.to_json());
  folder.commit();
  if (found.file.empty()) {
    notes.push_back(text(in, " holds no tokenizer; OUT has no vocabulary"));
  }
  return notes;
}

Notes rewrite_model(const std::string& path, const std::string& out,
                    const ConversionOptions& options) {
  const std::string in = model_path(path);
  const TensorFiles files(in);
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, entry] : files.entries()) {
    tensors.push_back(tensor_as(*entry, options.dtype));
  }
  AtomicFolder folder(out);
  write_tensors(folder, std::move(tensors), options);
  const fs::path config = fs::path(in) / kConfig;
  if (is_file(config)) folder.write(kConfig, recast_config(config.string(), options.dtype));
  copy_files(in, files_beside_tensors(in), folder);
  folder.commit();
  return {};
}

std::string describe_model(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    std::deque<SafetensorsFile> file;
    file.emplace_back(path);
    return path + tensor_lines(file);
  }
  const ModelFolder model(model_path(path));
  ModelConfig config = model.config();
  std::string page =
      text(model.path(), ": ", model.is_hugging_face() ? "Hugging Face" : "xtrain", " layout, ",
           name_of(config.model_type), "\n", parameter_count(config), " parameters\n");
  page += config_to_json({{"model", config_fields(config)}});
  for (const std::string& note : model.notes()) page += "note: " + note + "\n";
  return page + tensor_lines(model.tensors().files());
}

}  // namespace xtrain
