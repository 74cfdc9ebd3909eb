#pragma once
// From batches of documents to token ids.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "train/data/document_reader.h"
#include "train/data/text_encoder.h"
#include "train/data/vocabulary.h"

namespace xtrain {

// The text of a line of JSONL. Throws InputError, beginning with `where`, unless the line is an
// object whose member `field`, "text" where that is empty, is a string.
std::string text_of_json(std::string_view line, const std::string& field, const std::string& where);

struct EncodedPart {
  size_t ids_end;      // in EncodedBatch::ids
  int64_t text_bytes;  // of the document's own text
};

struct EncodedBatch {
  std::vector<int32_t> ids;
  std::vector<EncodedPart> parts;  // as in the batch
};

// For one thread. The ids of a batch depend on nothing but its text.
class DocumentEncoder {
 public:
  // `reader` says where parts come from, in errors; it must outlive the encoder.
  DocumentEncoder(std::shared_ptr<const Vocabulary> vocabulary, Markers markers,
                  std::string jsonl_field, const DocumentReader& reader);

  void encode(const DocumentBatch& batch, EncodedBatch& out);

 private:
  std::string where(const DocumentPart& part) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  TextEncoder encoder_;
  Markers markers_;
  std::string jsonl_field_;
  const DocumentReader& reader_;
};

}  // namespace xtrain
