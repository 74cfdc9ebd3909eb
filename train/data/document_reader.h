#pragma once
// Reads the documents of files one after the other, in pieces of bounded size.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "train/checksum.h"
#include "train/data/input_files.h"
#include "train/data/text_cutter.h"

namespace xtrain {

// What a document is: the whole file; with `split_on` the bytes between lines that hold exactly
// that text (none where there are no bytes); or a member of the JSON object in each line that is
// not blank, in every file when `jsonl_field` is given and else in files named *.jsonl, whose
// member is "text".
struct DocumentRules {
  std::string jsonl_field;
  std::string split_on;
};

// How far the reading has come. Documents are counted over all files, from 0.
struct ReadPosition {
  int64_t file = 0;
  int64_t offset = 0;  // bytes of the file
  int64_t line = 1;    // of the file, for JSONL
  int64_t document = 0;
  bool inside = false;  // the document has begun before
  bool at_line_start = true;
  int64_t bytes = 0;   // of all files
  std::string digest;  // checksum of a stream's bytes so far

  bool operator==(const ReadPosition&) const = default;
};

// A document, a part of a long one, or a line of JSON that holds one.
struct DocumentPart {
  size_t begin, end;  // bytes of the batch's text
  ReadPosition from;
  bool json, last;  // a part that is not `from.inside` is a document's first
};

struct DocumentBatch {
  std::string text;
  std::vector<DocumentPart> parts;
  ReadPosition after;

  std::string_view text_of(const DocumentPart& part) const {
    return std::string_view(text).substr(part.begin, part.end - part.begin);
  }
};

class DocumentReader {
 public:
  // Long documents are cut where `cutter` finds a border; without one, and in JSONL, a document
  // must fit into memory.
  DocumentReader(std::vector<InputFile> files, DocumentRules rules, TextCutter cutter);
  ~DocumentReader();

  // Goes on from where another reader of the same files has come to; before the first next().
  void seek(const ReadPosition& position);

  // Fills the batch with about 256 KiB of text; false at the end. Throws InputError naming a file
  // that cannot be read, or whose size is no longer what it was.
  bool next(DocumentBatch& batch);

  // For errors.
  std::string file_name(const ReadPosition& position) const;
  std::string where(const ReadPosition& position) const;  // file:line

 private:
  struct Ending {
    bool found;
    size_t text;  // bytes of the document; those that surely belong to it where not found
    size_t next;  // where the next one begins
  };

  void open_file();
  void close_file();
  bool is_jsonl() const;
  std::string_view window() const;
  void read_more();
  void consume(size_t bytes);
  Ending find_ending();
  Ending find_line_end();
  Ending find_marker_line();
  void take_part(DocumentBatch& batch);
  void emit(DocumentBatch& batch, const Ending& ending, bool last);

  std::vector<InputFile> files_;
  DocumentRules rules_;
  TextCutter cutter_;
  ReadPosition position_;

  int descriptor_ = -1;
  std::string buffer_;
  size_t at_ = 0;            // start of the window in the buffer
  bool file_ended_ = false;  // nothing follows the buffer
  size_t searched_ = 0;      // bytes of the window without an ending
  size_t uncuttable_ = 0;    // bytes of the window without a border
  std::unique_ptr<Checksum> digest_;
};

}  // namespace xtrain
