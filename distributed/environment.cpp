#include "distributed/environment.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <utility>

#include "core/error.h"

namespace xtrain {
namespace {

constexpr int kMostRanks = 1 << 20;
constexpr int kMostPorts = 65535;
constexpr const char* kLoopback = "127.0.0.1";

// The names under which a launcher says the same.
struct Variables {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};
constexpr Variables kPlain{"RANK and WORLD_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK",
                           "LOCAL_WORLD_SIZE"};
constexpr Variables kMpirun{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                            "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Variables kSrun{"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""};

constexpr const char* kTorchrunId = "TORCHELASTIC_RUN_ID";

bool has(const Environment& environment, const char* name) {
  return environment.count(name) > 0;
}

std::optional<std::string> value_of(const Environment& environment, const char* name) {
  const auto found = environment.find(name);
  if (found == environment.end()) return std::nullopt;
  return found->second;
}

// A whole number of [low, high].
int number_of(const Environment& environment, const char* name, int low, int high) {
  const std::string& value = environment.at(name);
  int number = 0;
  const char* end = value.data() + value.size();
  const auto [stopped, error] = std::from_chars(value.data(), end, number);
  check_input(error == std::errc() && stopped == end && number >= low && number <= high, name,
              " must be a whole number from ", low, " to ", high, "; got \"", value, "\"");
  return number;
}

// SLURM sets one of its two in shells that it has not placed: neither counts alone.
const Variables* variables_of(const Environment& environment) {
  for (const Variables* v : {&kPlain, &kMpirun}) {
    const bool rank = has(environment, v->rank), size = has(environment, v->size);
    check_input(rank == size, v->rank, " and ", v->size, " must be set together; got only ",
                rank ? v->rank : v->size);
    if (rank) return v;
  }
  return has(environment, kSrun.rank) && has(environment, kSrun.size) ? &kSrun : nullptr;
}

// Under torchrun a launcher above it may have placed torchrun itself.
void check_agreement(const Environment& environment, const Variables& chosen) {
  if (&chosen != &kPlain || has(environment, kTorchrunId)) return;
  if (!has(environment, kMpirun.rank) || !has(environment, kMpirun.size)) return;
  for (const auto& [plain, mpirun] :
       {std::pair{kPlain.rank, kMpirun.rank}, std::pair{kPlain.size, kMpirun.size}}) {
    check_input(environment.at(plain) == environment.at(mpirun), plain, "=", environment.at(plain),
                " and ", mpirun, "=", environment.at(mpirun), " contradict each other; unset one");
  }
}

std::string launcher_name(const Environment& environment, const Variables& variables) {
  return has(environment, kTorchrunId) && &variables == &kPlain ? "torchrun" : variables.launcher;
}

// --- token ---------------------------------------------------------------------------------------

// What the launcher gives to all processes of this run and of no other; "" where it gives nothing.
std::string job_id(const Environment& environment, const Variables& variables) {
  if (&variables == &kPlain) return value_of(environment, kTorchrunId).value_or("");
  const auto joined = [&](std::initializer_list<const char*> names) {
    std::string id;
    for (const char* name : names) {
      if (const auto value = value_of(environment, name)) id += *value + "/";
    }
    return id;
  };
  if (&variables == &kSrun) return joined({"SLURM_JOB_ID", "SLURM_STEP_ID"});
  return joined(
      {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_precondition_transports"});
}

// --- address -------------------------------------------------------------------------------------

bool one_host(const std::string& list) {
  return list.find_first_of(",[") == std::string::npos;
}

std::optional<std::string> slurm_host(const Environment& environment) {
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}) {
    const auto list = value_of(environment, name);
    if (!list) continue;
    const std::string host = first_host(*list);
    check_input(!host.empty(), name, " must be a list of hosts; got \"", *list, "\"");
    return one_host(*list) ? kLoopback : host;
  }
  return std::nullopt;
}

std::string host_for(const Environment& environment, const Variables& variables,
                     const Placement& placement) {
  if (const auto host = value_of(environment, "MASTER_ADDR")) return *host;
  if (placement.size == 1) return kLoopback;
  if (&variables == &kSrun) {
    if (const auto host = slurm_host(environment)) return *host;
  } else if (has(environment, variables.local_size) &&
             number_of(environment, variables.local_size, 1, placement.size) == placement.size) {
    return kLoopback;
  }
  reject_input("MASTER_ADDR or --master-addr must name the host of rank 0; ", placement.launcher,
               " gave none");
}

bool is_on_one_host(const Environment& environment, const Variables& variables,
                    const Placement& placement) {
  return placement.size == 1 || placement.master.host == kLoopback ||
         (has(environment, variables.local_size) &&
          number_of(environment, variables.local_size, 1, placement.size) == placement.size);
}

// Of FNV-1a, so that the ranks of one job agree and two jobs on one host seldom do.
int port_from(const std::string& id) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return 20000 + static_cast<int>(hash % 10000);
}

int port_for(const Environment& environment, const Placement& placement, const std::string& id) {
  if (has(environment, "MASTER_PORT")) {
    const int next = has(environment, kTorchrunId) ? 1 : 0;
    return number_of(environment, "MASTER_PORT", 1, kMostPorts - next) + next;
  }
  if (placement.size == 1) return 0;  // any: nobody else has to know it
  check_input(!id.empty(), "MASTER_PORT or --master-port must say where rank 0 listens; ",
              placement.launcher, " gave neither that nor a job id");
  return port_from(id);
}

std::string token_for(const Environment& environment, const Placement& placement,
                      const std::string& id) {
  if (const auto token = value_of(environment, "XTRAIN_TOKEN")) {
    check_input(token->size() >= 1 && token->size() <= 128,
                "XTRAIN_TOKEN must have 1 to 128 characters; got ", token->size());
    return *token;
  }
  if (!id.empty()) return placement.launcher + "/" + id.substr(0, 100);
  const std::string& host = placement.master.host;
  check_input(host == kLoopback || host == "localhost" || host == "::1",
              "XTRAIN_TOKEN must be set, to the same secret on all ranks, since ",
              placement.launcher, " gave no job id and ", host, " is reached over a network");
  return text("user/", getuid());
}

}  // namespace

Environment environment_of_this_process() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string line = *entry;
    const size_t equals = line.find('=');
    if (equals != std::string::npos) {
      environment.emplace(line.substr(0, equals), line.substr(equals + 1));
    }
  }
  return environment;
}

std::optional<Launcher> find_launcher(const Environment& environment) {
  const Variables* variables = variables_of(environment);
  if (!variables) return std::nullopt;
  return Launcher{launcher_name(environment, *variables),
                  number_of(environment, variables->size, 1, kMostRanks)};
}

std::optional<Placement> find_placement(const Environment& environment,
                                        const MasterChoice& choice) {
  const Variables* variables = variables_of(environment);
  if (!variables) return std::nullopt;
  check_agreement(environment, *variables);
  Placement p;
  p.launcher = launcher_name(environment, *variables);
  p.size = number_of(environment, variables->size, 1, kMostRanks);
  p.rank = number_of(environment, variables->rank, 0, kMostRanks);
  check_input(p.rank < p.size, variables->rank, " must be less than ", variables->size, "=", p.size,
              "; got ", p.rank);
  if (has(environment, variables->local_rank)) {
    p.local_rank = number_of(environment, variables->local_rank, 0, kMostRanks);
    check_input(*p.local_rank <= p.rank, variables->local_rank, " must be at most ",
                variables->rank, "=", p.rank, "; got ", *p.local_rank);
  }
  const std::string id = job_id(environment, *variables);
  p.master.host = choice.host ? *choice.host : host_for(environment, *variables, p);
  p.one_host = is_on_one_host(environment, *variables, p);
  p.master.port = choice.port ? *choice.port : port_for(environment, p, id);
  p.token = token_for(environment, p, id);
  return p;
}

bool is_placement_variable(const std::string& name) {
  static const std::array<std::string, 4> prefixes{"OMPI_", "PMIX_", "SLURM_", "TORCHELASTIC_"};
  static const std::array<std::string, 7> names{
      "RANK",        "WORLD_SIZE",  "LOCAL_RANK",  "LOCAL_WORLD_SIZE",
      "MASTER_ADDR", "MASTER_PORT", "XTRAIN_TOKEN"};
  return std::find(names.begin(), names.end(), name) != names.end() ||
         std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const std::string& prefix) { return name.starts_with(prefix); });
}

std::string first_host(const std::string& list) {
  std::string host;
  for (size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    const size_t end = list.find(']', i);
    if (end == std::string::npos) return "";
    host += list.substr(i + 1, list.find_first_of(",-]", i) - i - 1);
    i = end;
  }
  return host;
}

}  // namespace xtrain
