#include "train/data/count_documents.h"

#include <optional>
#include <string_view>

#include "train/data/document_encoder.h"
#include "train/data/ordered_pipeline.h"

namespace xtrain {
namespace {

struct Item {
  DocumentBatch text;
  std::optional<PieceCounts> counts;
};

}  // namespace

PieceCounts count_documents(const std::vector<InputFile>& files, const DocumentRules& rules,
                            const PreTokenizer& pre_tokenizer, int threads,
                            const std::atomic<bool>& stop,
                            const std::function<void(const ReadPosition&)>& on_progress) {
  DocumentReader reader(files, rules, TextCutter(pre_tokenizer.pattern()));
  PieceCounts counts(pre_tokenizer);
  const auto count = [&](Item& item, int) {
    if (!item.counts) item.counts.emplace(pre_tokenizer);
    item.counts->clear();
    for (const DocumentPart& part : item.text.parts) {
      const std::string_view text = item.text.text_of(part);
      if (part.json) {
        item.counts->add(text_of_json(text, rules.jsonl_field, reader.where(part.from)));
      } else {
        item.counts->add(text);
      }
    }
  };
  const auto consume = [&](Item& item) {
    counts.add(*item.counts);
    on_progress(item.text.after);
    return !stop;
  };
  OrderedPipeline<Item>(threads).run([&](Item& item) { return reader.next(item.text); }, count,
                                     consume);
  return counts;
}

}  // namespace xtrain
