#pragma once
// How this process was placed among those of a run by whoever started it: the launcher of launch.h,
// torchrun, srun, mpirun, or a person who set RANK and WORLD_SIZE.

#include <map>
#include <optional>
#include <string>

namespace xtrain {

using Environment = std::map<std::string, std::string>;

Environment environment_of_this_process();

// Where rank 0 waits for the others.
struct MasterAddress {
  std::string host;
  int port = 0;
};

// What a person may say about it instead of the environment.
struct MasterChoice {
  std::optional<std::string> host;
  std::optional<int> port;
};

struct Placement {
  std::string launcher;  // who said so: "torchrun", "mpirun", "srun" or "RANK and WORLD_SIZE"
  int rank = 0;
  int size = 1;
  std::optional<int> local_rank;  // among those of this host
  bool one_host = false;          // all ranks are known to be on this one
  MasterAddress master;
  std::string token;  // the same on all ranks; whoever does not know it cannot join
};

// Who placed this process, and how large the run is; no more is read than that.
struct Launcher {
  std::string name;
  int size = 1;
};
std::optional<Launcher> find_launcher(const Environment& environment);

// None where nobody placed this process. Read, with the first that is there deciding:
//   RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE                              torchrun and others
//   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE                       mpirun
//   SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID                                   srun
// Host: MASTER_ADDR, else the first of SLURM's hosts, else 127.0.0.1 when all ranks are on one.
// Port: MASTER_PORT; under torchrun, whose agent has that one, the next; else one that follows from
// the job id. Token: XTRAIN_TOKEN, else the job id; else, on 127.0.0.1 only, one that keeps out no
// more than mistakes. InputError where variables are nonsense, contradict each other or do not
// suffice.
std::optional<Placement> find_placement(const Environment& environment,
                                        const MasterChoice& choice = {});

// The variables above: a launcher below another one hands them out anew.
bool is_placement_variable(const std::string& name);

// The first host of a list as SLURM writes it: "a[03-05,9]-x,b" gives "a03-x".
std::string first_host(const std::string& list);

}  // namespace xtrain
