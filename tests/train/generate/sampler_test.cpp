#include "train/generate/sampler.h"

#include <cmath>
#include <limits>
#include <set>

#include "support/catch.h"
#include "support/rejection.h"

using namespace xtrain;

namespace {

// Logits of the given probabilities.
std::vector<double> logits_of(const std::vector<double>& probabilities) {
  std::vector<double> logits;
  for (const double p : probabilities) logits.push_back(std::log(p));
  return logits;
}

SamplingOptions plain() {
  SamplingOptions options;
  options.temperature = 1.0;
  return options;
}

// Every id that some number in [0, 1) chooses.
std::set<int32_t> reachable(const std::vector<double>& logits, const SamplingOptions& options) {
  std::set<int32_t> ids;
  for (int i = 0; i < 4096; ++i) ids.insert(choose_token(logits, options, (i + 0.5) / 4096));
  return ids;
}

// Ids 0 to 4 in another order than that of their probabilities.
const std::vector<double> kFive = logits_of({0.1, 0.4, 0.05, 0.25, 0.2});

}  // namespace

TEST_CASE("a token is drawn where its number falls among the falling probabilities", "[generate]") {
  // In falling order: 1 to 0.4, 3 to 0.65, 4 to 0.85, 0 to 0.95, 2 to 1.
  const SamplingOptions options = plain();
  CHECK(choose_token(kFive, options, 0.0) == 1);
  CHECK(choose_token(kFive, options, 0.399999) == 1);
  CHECK(choose_token(kFive, options, 0.400001) == 3);
  CHECK(choose_token(kFive, options, 0.649999) == 3);
  CHECK(choose_token(kFive, options, 0.650001) == 4);
  CHECK(choose_token(kFive, options, 0.849999) == 4);
  CHECK(choose_token(kFive, options, 0.850001) == 0);
  CHECK(choose_token(kFive, options, 0.949999) == 0);
  CHECK(choose_token(kFive, options, 0.950001) == 2);
  CHECK(choose_token(kFive, options, std::nextafter(1.0, 0.0)) == 2);
}

TEST_CASE("temperature divides the logits, and 0 takes the largest", "[generate]") {
  // At temperature 1/2 probabilities are squared: 0.16 of 0.275 for id 1.
  SamplingOptions options = plain();
  options.temperature = 0.5;
  const double share = 0.16 / (0.01 + 0.16 + 0.0025 + 0.0625 + 0.04);
  CHECK(choose_token(kFive, options, share - 1e-6) == 1);
  CHECK(choose_token(kFive, options, share + 1e-6) == 3);
  options.temperature = 0.0;
  CHECK(reachable(kFive, options) == std::set<int32_t>{1});
  CHECK(choose_token(std::vector<double>{0.0, 2.0, 2.0}, options, 0.99) == 1);  // the lowest id
}

TEST_CASE("top_k keeps the k likeliest and their equals", "[generate]") {
  SamplingOptions options = plain();
  options.top_k = 2;
  CHECK(reachable(kFive, options) == std::set<int32_t>{1, 3});
  // What stays is drawn in proportion: 0.4 of 0.65.
  CHECK(choose_token(kFive, options, 0.4 / 0.65 - 1e-6) == 1);
  CHECK(choose_token(kFive, options, 0.4 / 0.65 + 1e-6) == 3);
  options.top_k = 1;
  CHECK(reachable(kFive, options) == std::set<int32_t>{1});
  options.top_k = 5;
  CHECK(reachable(kFive, options).size() == 5);
  options.top_k = 99;
  CHECK(reachable(kFive, options).size() == 5);
  options.top_k = 2;
  CHECK(reachable({1.0, 3.0, 1.0, 1.0, -2.0}, options) == std::set<int32_t>{0, 1, 2, 3});
}

TEST_CASE("top_p keeps ids that follow less than its probability", "[generate]") {
  SamplingOptions options = plain();
  const auto kept = [&](double top_p) {
    options.top_p = top_p;
    return reachable(kFive, options);
  };
  CHECK(kept(0.01) == std::set<int32_t>{1});  // the first always
  CHECK(kept(0.39) == std::set<int32_t>{1});
  CHECK(kept(0.41) == std::set<int32_t>{1, 3});
  CHECK(kept(0.64) == std::set<int32_t>{1, 3});
  CHECK(kept(0.66) == std::set<int32_t>{1, 3, 4});
  CHECK(kept(0.96) == std::set<int32_t>{0, 1, 2, 3, 4});
  CHECK(kept(1.0).size() == 5);
  options.top_p = 0.5;  // 0.4 of 0.65
  CHECK(choose_token(kFive, options, 0.4 / 0.65 - 1e-6) == 1);
  CHECK(choose_token(kFive, options, 0.4 / 0.65 + 1e-6) == 3);
}

TEST_CASE("min_p keeps ids by their share of the largest probability", "[generate]") {
  SamplingOptions options = plain();
  const auto kept = [&](double min_p) {
    options.min_p = min_p;
    return reachable(kFive, options);
  };
  CHECK(kept(0.0).size() == 5);
  CHECK(kept(0.12).size() == 5);  // 0.05 is 0.125 of 0.4
  CHECK(kept(0.13) == std::set<int32_t>{0, 1, 3, 4});
  CHECK(kept(0.26) == std::set<int32_t>{1, 3, 4});
  CHECK(kept(0.63) == std::set<int32_t>{1});
  CHECK(kept(1.0) == std::set<int32_t>{1});
  CHECK(reachable({1.0, 1.0, 0.0}, options) == std::set<int32_t>{0, 1});
}

TEST_CASE("filters act one on what the other left", "[generate]") {
  SamplingOptions options = plain();
  // top_k 3 leaves 0.4, 0.25, 0.2 of 0.85: id 4 follows 0.765 of that, but 0.65 of the whole.
  options.top_k = 3;
  options.top_p = 0.7;
  CHECK(reachable(kFive, options) == std::set<int32_t>{1, 3});
  options.top_p = 0.77;
  CHECK(reachable(kFive, options) == std::set<int32_t>{1, 3, 4});
  options.min_p = 0.55;  // of what is left: 0.25 is 0.625 of 0.4, 0.2 is half
  CHECK(reachable(kFive, options) == std::set<int32_t>{1, 3});
  // Temperature comes before them: at 1/2, 0.16 is more than half of 0.275.
  options = plain();
  options.temperature = 0.5;
  options.top_p = 0.5;
  CHECK(reachable(kFive, options) == std::set<int32_t>{1});
}

TEST_CASE("repetition_penalty divides positive and multiplies negative logits, once an id",
          "[generate]") {
  std::vector<double> logits{2.0, -1.0, 0.0, 3.0, -4.0};
  penalize_repetition(logits, std::vector<int32_t>{0, 4, 0, 2, 0}, 2.0);
  CHECK(logits == std::vector<double>{1.0, -1.0, 0.0, 3.0, -8.0});
  penalize_repetition(logits, std::vector<int32_t>{3, 17}, 1.0);  // 1: nothing
  CHECK(logits == std::vector<double>{1.0, -1.0, 0.0, 3.0, -8.0});
  penalize_repetition(logits, std::vector<int32_t>{3, 17, 4}, 0.5);  // ids that cannot be drawn
  CHECK(logits == std::vector<double>{1.0, -1.0, 0.0, 6.0, -4.0});
  // It acts on greedy choice, too.
  SamplingOptions options;
  options.temperature = 0.0;
  options.repetition_penalty = 4.0;
  std::vector<double> two{2.0, 1.0};
  CHECK(draw_token(two, std::vector<int32_t>{0}, options, 0, 0) == 1);
}

TEST_CASE("the numbers of a draw are those of seed, sample and place alone", "[generate]") {
  const std::vector<double> even(1000, 0.0);
  const auto drawn = [&](uint64_t seed, uint64_t sample, uint64_t place) {
    SamplingOptions options = plain();
    options.seed = seed;
    std::vector<double> logits = even;
    return draw_token(logits, {}, options, sample, place);
  };
  CHECK(drawn(1, 0, 0) == drawn(1, 0, 0));
  CHECK(drawn(1, 0, 0) != drawn(2, 0, 0));
  CHECK(drawn(1, 0, 0) != drawn(1, 1, 0));
  CHECK(drawn(1, 0, 0) != drawn(1, 0, 1));
}

TEST_CASE("logits that are not finite are an error and no token", "[generate]") {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    CHECK_THROWS_AS(choose_token(std::vector<double>{0.0, bad}, plain(), 0.5), Error);
  }
  // Large ones are no trouble.
  CHECK(choose_token(std::vector<double>{1e300, -1e300}, plain(), 0.999) == 0);
}

TEST_CASE("sampling options out of range are refused by name", "[generate]") {
  const auto refused = [](const auto& change) {
    SamplingOptions options;
    change(options);
    return rejection([&] { validate(options); });
  };
  CHECK(refused([](auto& o) { o.temperature = -0.1; }) ==
        "temperature must be 0 or more; got -0.1");
  CHECK(refused([](auto& o) { o.temperature = NAN; }).find("temperature") == 0);
  CHECK(refused([](auto& o) { o.top_k = 0; }).find("top_k must be at least 1; got 0") == 0);
  CHECK(refused([](auto& o) { o.top_p = 0.0; }) == "top_p must lie in (0, 1]; got 0");
  CHECK(refused([](auto& o) { o.top_p = 1.5; }).find("top_p") == 0);
  CHECK(refused([](auto& o) { o.min_p = 1.5; }) == "min_p must lie in [0, 1]; got 1.5");
  CHECK(refused([](auto& o) { o.repetition_penalty = 0.0; }).find("repetition_penalty") == 0);
  CHECK(refused([](auto&) {}) == "accepted");
}
