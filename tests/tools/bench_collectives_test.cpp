#include "distributed/backend.h"

#if XT_GLOO_BUILT

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "support/catch.h"
#include "support/tolerance.h"
#include "tools/program_runs.h"

using namespace xtrain;

TEST_CASE("bench_collectives times every operation between processes that it starts", "[tools]") {
  const Workplace place;
  const Finished run =
      place.run("bench_collectives", "--device cpu --nproc 2 --dtype f64 --mib 0.0625 0.25 --json");
  CHECK(run.err == "");
  REQUIRE(run.code == 0);
  const auto result = nlohmann::json::parse(run.out);
  CHECK(result["ranks"] == 2);
  CHECK(result["backend"] == "gloo");
  std::multiset<std::string> operations;
  for (const auto& row : result["rows"]) {
    operations.insert(row["operation"]);
    const double bytes = row["bytes"], us = row["us"], rate = row["bus_gb_per_s"];
    CHECK((bytes == 65536.0 || bytes == 262144.0));
    // Of two ranks' tensors all crosses each link once, half in a reduce-scatter or an all-gather.
    const double crossing = row["operation"] == "all_reduce" ? bytes : bytes / 2;
    CHECK(us > 0.0);
    CHECK(std::fabs(rate / (crossing / us / 1e3) - 1.0) < tolerance(Dtype::f64));
  }
  CHECK(operations == std::multiset<std::string>{"all_gather", "all_gather", "all_reduce",
                                                 "all_reduce", "reduce_scatter", "reduce_scatter"});
}

TEST_CASE("bench_collectives refuses what it cannot measure", "[tools]") {
  const Workplace place;
  CHECK(place.run("bench_collectives", "--device cpu --nproc 1").code == 2);
  CHECK(place.run("bench_collectives", "--device gpu").code == 2);
  CHECK(place.run("bench_collectives", "--device cpu --dtype f16").code == 2);
  CHECK(place.run("bench_collectives", "--device cpu --dtype i32").code == 2);
  CHECK(place.run("bench_collectives", "--device cpu --mib 0").code == 2);
}

#endif
