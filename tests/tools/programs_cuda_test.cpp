#include <signal.h>

#include <chrono>
#include <thread>

#include "support/catch.h"
#include "tools/program_runs.h"

using namespace xtrain;

TEST_CASE("train finds the GPU by itself, and CPU and GPU go on with each other's runs", "[cuda]") {
  const Workplace place;
  const std::string arguments = "--config small.json --flash --resume auto --dtype ";
  for (const std::string dtype : {"bf16", "f32"}) {
    INFO(dtype);
    const auto on = [&](const std::string& device, int steps) {
      return place.run("train", arguments + dtype + " --out-dir " + dtype + " --device " + device +
                                    " --max-steps " + std::to_string(steps));
    };
    const Finished begun = on("auto", 10);
    CHECK(begun.err == "");
    REQUIRE(begun.code == 0);
    CHECK(begun.out.find(" parameters, " + dtype + " on cuda:0") != std::string::npos);
    CHECK(begun.out.find("best validation loss ") != std::string::npos);
    CHECK(begun.out.find("--- sample 1\n") != std::string::npos);
    const std::string checkpoint = "continuing from " + dtype + "/checkpoints/step_000000";
    const Finished further = on("cpu", 20);
    CHECK(further.code == 0);
    CHECK(further.out.find(" on cpu") != std::string::npos);
    CHECK(further.out.find(checkpoint + "10") != std::string::npos);
    const Finished ended = on("cuda", 30);
    CHECK(ended.code == 0);
    CHECK(ended.out.find(checkpoint + "20") != std::string::npos);
  }
}

TEST_CASE("a run on the GPU ends with the same weights each time, whatever its host threads",
          "[cuda]") {
  const Workplace place;
  const auto weights = [&](const std::string& arguments) {
    return weights_line(
        place.run("train", "--config small.json --device cuda --flash --dtype bf16 " + arguments)
            .out);
  };
  const std::string expected = weights("--out-dir a");
  CHECK(expected.size() == 16);
  CHECK(weights("--out-dir b") == expected);
  CHECK(weights("--out-dir c --threads 8") == expected);
}

TEST_CASE("SIGTERM ends a run on the GPU with a checkpoint", "[cuda]") {
  const Workplace place;
  const pid_t child =
      place.start("train", "--config small.json --device cuda --max-steps 1000000 --out-dir run");
  const auto begun = [&] {
    return place.read("run/metrics.jsonl").find("\"step\":5,") != std::string::npos;
  };
  for (int i = 0; i < 3000 && !begun(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  kill(child, SIGTERM);
  CHECK(wait_for(child) == 0);
  const std::string out = place.read("out.txt");
  CHECK(out.find("saved run/checkpoints/step_") != std::string::npos);
}

TEST_CASE("tensor cores are refused for f32", "[cuda]") {
  const Workplace place;
  const Finished run = place.run("train", "--config small.json --device cuda --set train.gemm=mma");
  CHECK(run.code == 2);
  CHECK(run.err == "train: train.gemm mma: multiplies bf16 only; got train.dtype f32\n");
}
