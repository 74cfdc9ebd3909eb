#pragma once
// The loss of a model on a stream of tokens, of which every one counts once.
//
// A window of seq_len inputs moves over the stream by `stride` tokens at a time. The first one
// counts all its targets, each later one those that no window before it has counted: with stride =
// seq_len all of them, with a smaller one the last `stride`, which then see at least
// seq_len - stride tokens before them. The last window is as short as the stream leaves it. The
// first token of the stream has nothing before it and is no target; nor is a token that the source
// masks.

#include <cstdint>
#include <functional>
#include <optional>

#include "model/tiny_transformer.h"
#include "train/data/token_source.h"
#include "train/data/vocabulary.h"

namespace xtrain {

struct CorpusLossOptions {
  int64_t batch_size = 8;  // windows computed at a time; changes no result
  int64_t seq_len = 0;     // inputs of a window
  int64_t stride = 0;      // in 1..seq_len; 0: seq_len
  int64_t max_tokens = 0;  // targets from the start of the stream on; 0: all
  Exec exec;
};

struct CorpusLoss {
  double nats = 0;     // the sum of -log(probability) over the tokens
  int64_t tokens = 0;  // that count
  // Of the text of these tokens; special tokens, such as the end of a document, have none. None
  // where the vocabulary does not know the text.
  std::optional<int64_t> bytes;

  double loss() const { return nats / static_cast<double>(tokens); }  // nats a token
  double perplexity() const;                                          // exp(loss())
  // nats / (ln 2 * bytes): comparable between vocabularies. None where there are no bytes.
  std::optional<double> bits_per_byte() const;
};

// How much of the work is done; called now and then.
using EvalProgress = std::function<void(int64_t done, int64_t all)>;

// Ids of the model beyond the vocabulary are padding: no token may have one, and they take no
// probability. Sums run in f64 in the order of the stream, whatever the batch size. Throws
// InputError where the options do not fit the model or no token counts, Error where a loss is not
// finite.
CorpusLoss corpus_loss(const Context& ctx, TinyTransformer& model, const TokenSource& source,
                       const Vocabulary& vocabulary, const CorpusLossOptions& options,
                       const EvalProgress& progress = {});

}  // namespace xtrain
