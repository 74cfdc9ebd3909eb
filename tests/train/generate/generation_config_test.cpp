#include "train/generate/generation_config.h"

#include "support/catch.h"
#include "support/rejection.h"
#include "support/temporary_folder.h"

using namespace xtrain;

namespace {

SamplingOptions options_from(const std::string& json) {
  const TemporaryFolder folder;
  folder.write("generation_config.json", json);
  return sampling_options(read_generation_config(folder.path.string()));
}

}  // namespace

TEST_CASE("a generation_config.json gives the sampling options", "[generate]") {
  const SamplingOptions qwen = options_from(
      R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "eos_token_id": [1, 2],
          "repetition_penalty": 1.05, "min_p": 0.02, "transformers_version": "4.51.0"})");
  CHECK(qwen.temperature == 0.6);
  CHECK(qwen.top_k == 20);
  CHECK(qwen.top_p == 0.95);
  CHECK(qwen.min_p == 0.02);
  CHECK(qwen.repetition_penalty == 1.05);
  // Greedy unless it says that it samples; what others take where it says no more.
  CHECK(options_from(R"({"do_sample": false})").temperature == 0.0);
  CHECK(options_from(R"({"temperature": 0.6})").temperature == 0.0);
  CHECK(options_from(R"({"do_sample": false, "temperature": 0.6})").temperature == 0.0);
  const SamplingOptions brief = options_from(R"({"do_sample": true, "temperature": null})");
  CHECK(brief.temperature == 1.0);
  CHECK(!brief.top_k);
  CHECK(!options_from(R"({"do_sample": true, "top_k": 0})").top_k);
  // A file that says nothing of sampling leaves the defaults.
  CHECK(options_from(R"({"eos_token_id": 3, "repetition_penalty": 1.2})").temperature == 0.8);
  CHECK(options_from(R"({"eos_token_id": 3, "repetition_penalty": 1.2})").repetition_penalty ==
        1.2);
}

TEST_CASE("a folder without generation_config.json has the defaults", "[generate]") {
  const TemporaryFolder folder;
  CHECK(!read_generation_config(folder.path.string()));
  const SamplingOptions options = sampling_options(std::nullopt);
  CHECK(options.temperature == 0.8);
  CHECK(!options.top_k);
}

TEST_CASE("a generation_config.json of the wrong form is refused naming the key", "[generate]") {
  constexpr size_t npos = std::string::npos;
  const auto refused = [](const std::string& json) {
    return rejection([&] { options_from(json); });
  };
  const auto ends = [](const std::string& text, const std::string& end) {
    INFO(text);
    CHECK(text.ends_with(end));
  };
  CHECK(refused("[]").find("generation_config.json: must hold a JSON object; got") != npos);
  CHECK(refused("{").find(": not valid JSON: ") != npos);
  CHECK(refused(R"({"top_k": 1, "top_k": 2})").find(": key \"top_k\" is given twice") != npos);
  ends(refused(R"({"temperature": "hot"})"), ": temperature must be a number; got \"hot\"");
  ends(refused(R"({"top_k": 1.5})"), ": top_k must be a whole number; got 1.5");
  ends(refused(R"({"top_k": 18446744073709551615})"),
       ": top_k must be a whole number; got 18446744073709551615");
  ends(refused(R"({"top_k": -1})"),
       "generation_config.json: top_k must be 0, for all tokens, or more; got -1");
  ends(refused(R"({"max_new_tokens": -1})"), ".json: max_new_tokens must be 0 or more; got -1");
  ends(refused(R"({"do_sample": true, "temperature": -0.5})"),
       ".json: temperature must be 0 or more; got -0.5");
  ends(refused(R"({"top_p": 0})"), ".json: top_p must lie in (0, 1]; got 0");
  ends(refused(R"({"min_p": 2})"), ".json: min_p must lie in [0, 1]; got 2");
  ends(refused(R"({"repetition_penalty": 0})"),
       ".json: repetition_penalty must be more than 0; got 0");
  ends(refused(R"({"do_sample": 1})"), ": do_sample must be true or false; got 1");
}
