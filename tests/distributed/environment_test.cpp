#include "distributed/environment.h"

#include "support/catch.h"
#include "support/rejection.h"

using namespace xtrain;

namespace {

Environment with(Environment environment, const Environment& more) {
  for (const auto& [name, value] : more) environment[name] = value;
  return environment;
}

const Environment kTorchrun{{"RANK", "3"},
                            {"WORLD_SIZE", "4"},
                            {"LOCAL_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "2"},
                            {"MASTER_ADDR", "node"},
                            {"MASTER_PORT", "29500"},
                            {"TORCHELASTIC_RUN_ID", "job7"}};
const Environment kPlain{
    {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1234"}};
const Environment kSrun{{"SLURM_PROCID", "5"},  {"SLURM_NTASKS", "8"},
                        {"SLURM_LOCALID", "1"}, {"SLURM_JOB_NODELIST", "gpu[03-05,9]"},
                        {"SLURM_JOB_ID", "42"}, {"SLURM_STEP_ID", "0"}};
const Environment kMpirun{{"OMPI_COMM_WORLD_RANK", "1"},
                          {"OMPI_COMM_WORLD_SIZE", "2"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                          {"PMIX_NAMESPACE", "4711"}};

}  // namespace

TEST_CASE("a process that nobody placed has no placement", "[distributed]") {
  CHECK_FALSE(find_placement({}));
  CHECK_FALSE(find_placement({{"MASTER_ADDR", "node"}, {"MASTER_PORT", "1"}}));
  // Shells inside of an allocation.
  CHECK_FALSE(find_placement({{"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "42"}}));
  CHECK_FALSE(find_placement({{"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "42"}}));
}

TEST_CASE("torchrun's variables are read, and the port after its agent's is taken",
          "[distributed]") {
  const auto p = find_placement(kTorchrun);
  REQUIRE(p);
  CHECK(p->launcher == "torchrun");
  CHECK(p->rank == 3);
  CHECK(p->size == 4);
  CHECK(p->local_rank == 1);
  CHECK(p->master.host == "node");
  CHECK(p->master.port == 29501);
  CHECK(p->token == "torchrun/job7");
}

TEST_CASE("RANK and WORLD_SIZE suffice beside an address, and the port is as given",
          "[distributed]") {
  const auto p = find_placement(kPlain);
  REQUIRE(p);
  CHECK(p->rank == 1);
  CHECK(p->size == 2);
  CHECK_FALSE(p->local_rank);
  CHECK(p->master.host == "127.0.0.1");
  CHECK(p->master.port == 1234);
  CHECK_FALSE(p->token.empty());
  CHECK(find_placement(with(kPlain, {{"XTRAIN_TOKEN", "secret"}}))->token == "secret");
  const auto chosen = find_placement(with(kPlain, {{"XTRAIN_TOKEN", "secret"}}), {"other", 99});
  CHECK(chosen->master.host == "other");
  CHECK(chosen->master.port == 99);
}

TEST_CASE("srun's variables are read, the first host is rank 0's", "[distributed]") {
  const auto p = find_placement(kSrun);
  REQUIRE(p);
  CHECK(p->launcher == "srun");
  CHECK(p->rank == 5);
  CHECK(p->size == 8);
  CHECK(p->local_rank == 1);
  CHECK(p->master.host == "gpu03");
  CHECK(p->token == "srun/42/0/");
  // Another rank of the job finds the same place, another job another one.
  const auto peer = find_placement(with(kSrun, {{"SLURM_PROCID", "6"}, {"SLURM_LOCALID", "0"}}));
  CHECK(peer->master.port == p->master.port);
  CHECK(peer->token == p->token);
  CHECK(find_placement(with(kSrun, {{"SLURM_JOB_ID", "43"}}))->master.port != p->master.port);
  CHECK(find_placement(with(kSrun, {{"SLURM_JOB_NODELIST", "gpu03"}}))->master.host == "127.0.0.1");
  CHECK(find_placement(with(kSrun, {{"MASTER_ADDR", "a"}}))->master.host == "a");
}

TEST_CASE("mpirun's variables are read, and one host needs no address", "[distributed]") {
  const auto p = find_placement(kMpirun);
  REQUIRE(p);
  CHECK(p->launcher == "mpirun");
  CHECK(p->rank == 1);
  CHECK(p->size == 2);
  CHECK(p->local_rank == 1);
  CHECK(p->master.host == "127.0.0.1");
  CHECK(p->token == "mpirun/4711/");
  const std::string refused = rejection([] {
    find_placement(with(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}));
  });
  CHECK(refused.find("--master-addr must name the host of rank 0") != std::string::npos);
}

TEST_CASE("the launcher nearest to the process decides", "[distributed]") {
  // torchrun in tasks of srun, mpirun in a job script.
  CHECK(find_placement(with(kTorchrun, kSrun))->launcher == "torchrun");
  CHECK(find_placement(with(kTorchrun, kMpirun))->rank == 3);
  CHECK(find_placement(with(kMpirun, kSrun))->launcher == "mpirun");
  // A script that hands mpirun's numbers on.
  CHECK(find_placement(with(kPlain, kMpirun))->rank == 1);
}

TEST_CASE("variables that are nonsense or contradict each other are refused", "[distributed]") {
  const struct {
    Environment environment;
    const char* message;
  } cases[] = {
      {{{"RANK", "0"}}, "RANK and WORLD_SIZE must be set together; got only RANK"},
      {{{"WORLD_SIZE", "2"}}, "must be set together; got only WORLD_SIZE"},
      {with(kPlain, {{"RANK", ""}}), "RANK must be a whole number from 0"},
      {with(kPlain, {{"RANK", "1x"}}), "got \"1x\""},
      {with(kPlain, {{"RANK", "-1"}}), "got \"-1\""},
      {with(kPlain, {{"RANK", "99999999999999999999"}}), "RANK must be a whole number"},
      {with(kPlain, {{"RANK", "2"}}), "RANK must be less than WORLD_SIZE=2; got 2"},
      {with(kPlain, {{"WORLD_SIZE", "0"}}), "WORLD_SIZE must be a whole number from 1"},
      {with(kPlain, {{"LOCAL_RANK", "2"}}), "LOCAL_RANK must be at most RANK=1; got 2"},
      {with(kPlain, {{"MASTER_PORT", "0"}}), "MASTER_PORT must be a whole number from 1 to 65535"},
      {with(kPlain, {{"MASTER_PORT", "65536"}}), "MASTER_PORT"},
      {with(kTorchrun, {{"MASTER_PORT", "65535"}}), "MASTER_PORT must be"},
      {with(kPlain, {{"XTRAIN_TOKEN", ""}}), "XTRAIN_TOKEN must have 1 to 128 characters; got 0"},
      {with(kPlain, {{"MASTER_ADDR", "node"}}), "XTRAIN_TOKEN must be set"},
      {with(with(kPlain, kMpirun), {{"RANK", "0"}}),
       "RANK=0 and OMPI_COMM_WORLD_RANK=1 contradict each other"},
      {with(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}}), "OMPI_COMM_WORLD_LOCAL_SIZE"},
      {with(kSrun, {{"SLURM_PROCID", "8"}}), "SLURM_PROCID must be less than SLURM_NTASKS=8"},
      {with(kSrun, {{"SLURM_JOB_NODELIST", "gpu[3"}}),
       "SLURM_JOB_NODELIST must be a list of hosts"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}},
       "--master-port must say where rank 0 listens"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "5"}},
       "--master-addr must name the host of rank 0"},
  };
  for (const auto& c : cases) {
    const std::string refused = rejection([&] { find_placement(c.environment); });
    INFO(c.message << " in " << refused);
    CHECK(refused.find(c.message) != std::string::npos);
    CHECK(refused.find('\n') == std::string::npos);
  }
}

TEST_CASE("the first host of SLURM's lists is found", "[distributed]") {
  CHECK(first_host("a") == "a");
  CHECK(first_host("a,b") == "a");
  CHECK(first_host("a[3-5,7],b") == "a3");
  CHECK(first_host("a[003,7]") == "a003");
  CHECK(first_host("rack[1-2]node[04-08]-x,b") == "rack1node04-x");
  CHECK(first_host("a[3") == "");
  CHECK(first_host("") == "");
}

TEST_CASE("a launcher's variables are known, others are not", "[distributed]") {
  for (const char* name : {"RANK", "MASTER_PORT", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK",
                           "TORCHELASTIC_RUN_ID", "XTRAIN_TOKEN"}) {
    CHECK(is_placement_variable(name));
  }
  for (const char* name : {"PATH", "NCCL_DEBUG", "MY_RANK"})
    CHECK_FALSE(is_placement_variable(name));
}
