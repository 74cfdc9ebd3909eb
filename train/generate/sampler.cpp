#include "train/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/random.h"

namespace xtrain {
namespace {

constexpr uint64_t kSampleSite = 0x73616d706c65;  // apart from the model's own sites

// Ids by falling logit, found as far as they are asked for: mostly few are, of very many.
class Falling {
 public:
  explicit Falling(std::span<const double> logits) : logits_(logits), ids_(logits.size()) {
    std::iota(ids_.begin(), ids_.end(), 0);
    std::make_heap(ids_.begin(), ids_.end(), order());
  }
  bool empty() const { return ids_.empty(); }
  int32_t top() const { return ids_.front(); }
  double largest() const { return logits_[ids_.front()]; }
  void pop() {
    std::pop_heap(ids_.begin(), ids_.end(), order());
    ids_.pop_back();
  }

 private:
  struct Order {
    std::span<const double> logits;
    bool operator()(int32_t a, int32_t b) const {
      return logits[a] != logits[b] ? logits[a] < logits[b] : a > b;
    }
  };
  Order order() const { return Order{logits_}; }

  std::span<const double> logits_;
  std::vector<int32_t> ids_;
};

struct Candidate {
  int32_t id;
  double weight;  // probability over that of the likeliest
};

// What the filters leave, in falling order. Without filters the first ones alone, up to the one
// that `uniform` falls on.
std::vector<Candidate> candidates(std::span<const double> logits, const SamplingOptions& o,
                                  double uniform, double& total) {
  Falling falling(logits);
  const double largest = falling.largest();
  const auto weight = [&](double logit) { return std::exp((logit - largest) / o.temperature); };
  std::vector<Candidate> kept;
  const auto keep = [&] {
    kept.push_back({falling.top(), weight(falling.largest())});
    falling.pop();
  };
  const int64_t all = static_cast<int64_t>(logits.size());
  total = 0.0;
  if (o.top_k.value_or(all) < all) {
    double smallest = largest;
    while (!falling.empty() &&
           (static_cast<int64_t>(kept.size()) < *o.top_k || falling.largest() == smallest)) {
      smallest = falling.largest();
      keep();
      total += kept.back().weight;
    }
  } else {
    for (const double logit : logits) total += weight(logit);
  }
  const bool cuts = o.top_p < 1.0 || o.min_p > 0.0;
  const double limit = cuts ? o.top_p * total : uniform * total;
  double before = 0.0;
  for (size_t i = 0; i < kept.size() || !falling.empty(); ++i) {
    if (i == kept.size()) keep();
    const double w = kept[i].weight;
    const bool left_out = cuts ? before >= limit || w < o.min_p : before > limit;
    if (i > 0 && left_out) {
      kept.resize(i);
      break;
    }
    before += w;
  }
  if (cuts) total = before;
  return kept;
}

// Vocabularies are large, and a token must not take longer to choose than to compute.
bool all_finite(std::span<const double> values) {
  double differences = 0.0;  // 0 of finite numbers, else NaN
#pragma omp simd reduction(+ : differences)
  for (size_t i = 0; i < values.size(); ++i) differences += values[i] - values[i];
  return differences == 0.0;
}

// The first of the largest.
int32_t argmax(std::span<const double> values) {
  double largest = values[0];
#pragma omp simd reduction(max : largest)
  for (size_t i = 0; i < values.size(); ++i) largest = std::max(largest, values[i]);
  return static_cast<int32_t>(std::find(values.begin(), values.end(), largest) - values.begin());
}

}  // namespace

void validate(const SamplingOptions& o) {
  check_input(std::isfinite(o.temperature) && o.temperature >= 0.0,
              "temperature must be 0 or more; got ", o.temperature);
  check_input(!o.top_k || *o.top_k >= 1, "top_k must be at least 1; got ", o.top_k.value_or(0),
              "; leave it out to draw among all");
  check_input(o.top_p > 0.0 && o.top_p <= 1.0, "top_p must lie in (0, 1]; got ", o.top_p);
  check_input(o.min_p >= 0.0 && o.min_p <= 1.0, "min_p must lie in [0, 1]; got ", o.min_p);
  check_input(std::isfinite(o.repetition_penalty) && o.repetition_penalty > 0.0,
              "repetition_penalty must be more than 0; got ", o.repetition_penalty);
}

void penalize_repetition(std::span<double> logits, std::span<const int32_t> text, double penalty) {
  if (penalty == 1.0) return;
  std::vector<bool> done(logits.size());
  for (const int32_t id : text) {
    if (id < 0 || static_cast<size_t>(id) >= logits.size() || done[id]) continue;
    done[id] = true;
    logits[id] = logits[id] < 0.0 ? logits[id] * penalty : logits[id] / penalty;
  }
}

int32_t choose_token(std::span<const double> logits, const SamplingOptions& options,
                     double uniform) {
  check(!logits.empty(), "sample: there must be at least one token to draw");
  check(all_finite(logits),
        "sample: the logits are not finite, so that no token can be drawn; has training diverged?");
  if (options.temperature == 0.0) return argmax(logits);
  double total = 0.0;
  const std::vector<Candidate> kept = candidates(logits, options, uniform, total);
  double left = uniform * total;
  for (const Candidate& c : kept) {
    left -= c.weight;
    if (left < 0.0) return c.id;
  }
  return kept.back().id;
}

int32_t draw_token(std::span<double> logits, std::span<const int32_t> text,
                   const SamplingOptions& options, uint64_t sample, uint64_t place) {
  penalize_repetition(logits, text, options.repetition_penalty);
  const RandomStream stream = random_stream(options.seed, 0, kSampleSite);
  return choose_token(logits, options, stream.uniform(sample, place));
}

}  // namespace xtrain
