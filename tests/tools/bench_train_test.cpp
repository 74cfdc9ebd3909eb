#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "tools/program_runs.h"

using namespace xtrain;

namespace {

// How far a is from b, in shares of b.
double apart(double a, double b) {
  return std::abs(a - b) / std::abs(b);
}

}  // namespace

TEST_CASE("bench_train's numbers follow from each other", "[tools]") {
  const Workplace place;
  const std::string model = "--config small.json --set model.vocab_size=40 --steps 3 --warm-up 1 ";
  const Finished run = place.run("bench_train", model + "--batch 3x8 --accumulate 2 --json");
  INFO(run.err);
  REQUIRE(run.code == 0);
  const auto r = nlohmann::json::parse(run.out);
  const auto number = [&](const char* key) { return r[key].get<double>(); };
  const double speed = number("tokens_per_s"), peak = 1e12 * number("peak_tflops");
  CHECK(apart(speed, 2 * 3 * 8 / (1e-3 * number("ms"))) <= 1e-9);
  CHECK(apart(number("mfu"), number("operations_per_token") * speed / peak) <= 1e-9);
  CHECK(number("fastest_ms") <= number("ms"));
  CHECK(number("ms") <= number("slowest_ms"));
  CHECK(apart(number("loss"), std::log(40.0)) <= 0.1);  // random tokens stay so
  CHECK(apart(number("predicted_mib"), number("peak_mib")) <= 0.05);
  const std::string page = place.run("bench_train", model).out;
  for (const char* part : {"1 x 2 x 16 tokens", "tokens/s", "MFU", "TFLOP/s", "MiB"}) {
    INFO(part);
    CHECK(page.find(part) != std::string::npos);
  }
}

TEST_CASE("bench_train refuses what it cannot measure", "[tools]") {
  const Workplace place;
  for (const auto& [arguments, message] :
       {std::pair{"--config small.json", "model.vocab_size must be given"},
        {"--preset nothing", "nothing"},
        {"--batch 8", "--batch must be sequences x tokens"},
        {"--batch 8xno", "--batch"},
        {"--recorded maybe", "--recorded"}}) {
    INFO(arguments);
    const Finished run = place.run("bench_train", arguments);
    INFO(run.err);
    CHECK(run.code == 2);
    CHECK(run.out == "");
    CHECK(run.err.find(message) != std::string::npos);
  }
}

TEST_CASE("train --dry-run prints sizes and leaves no files", "[tools]") {
  const Workplace place;
  const Finished run = place.run("train", "--config small.json --dry-run --batch-size 3");
  CHECK(run.code == 0);
  CHECK(run.err == "");
  CHECK(run.out.find(" parameters\n48 tokens a step, 1 times 3 sequences of 16\n") !=
        std::string::npos);
  CHECK(run.out.find("peak memory ") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(place.path / "out"));
}
