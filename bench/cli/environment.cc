// SPDX-License-Identifier: Apache-2.0
#include "bench/cli/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <vector>

#include "bench/cli/options.h"
#include "bench/cli/text.h"

namespace rocenante::bench {

namespace {

constexpr std::uint64_t kMaxPort = 65535;

// The variables in which a tool numbers its processes.
struct Family {
  const char* tool;
  const char* rank;
  const char* size;
  const char* local_size;  // how many of them are on this host
};
constexpr Family kOpenMpi = {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Family kPmi = {"mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"};
constexpr Family kTorch = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"};
constexpr Family kSlurm = {"srun", "SLURM_PROCID", "SLURM_NTASKS", nullptr};

// Variables by name; an empty one counts as not there.
class Variables {
 public:
  explicit Variables(const GetVariable& get) : get_(get) {}

  std::string value(const char* name) const {
    const char* const found = get_(name);
    return found == nullptr ? "" : found;
  }
  bool has(const char* name) const { return !value(name).empty(); }
  // "NAME 'value'"
  std::string quoted(const char* name) const { return text("%s '%s'", name, value(name).c_str()); }
  std::uint64_t number(const char* name, std::uint64_t min, std::uint64_t max) const {
    return parse_number(name, value(name), min, max);
  }

 private:
  const GetVariable& get_;
};

// The process that started the job: the nearest ancestor that is not itself numbered by `variable`. For
// tools that give their jobs no name.
std::string starter(const char* variable) {
  pid_t pid = getppid();
  for (;;) {
    const std::string folder = text("/proc/%d/", static_cast<int>(pid));
    std::stringstream environment;
    environment << '\0' << std::ifstream(folder + "environ").rdbuf();
    const std::string start = std::string(1, '\0') + variable + '=';
    if (environment.str().find(start) == std::string::npos) break;
    // "PID (NAME) STATE PARENT"; the name may hold anything.
    std::string line;
    std::getline(std::ifstream(folder + "stat"), line);
    std::istringstream rest(line.substr(std::min(line.size(), line.rfind(')') + 1)));
    std::string state;
    pid_t parent = 0;
    if (!(rest >> state >> parent) || parent <= 0) break;
    pid = parent;
  }
  return text("process %d", static_cast<int>(pid));
}

// Numbers alone; none if the family's variables are not there.
std::optional<Job> read_family(const Variables& variables, const Family& family) {
  const bool rank = variables.has(family.rank);
  const bool size = variables.has(family.size);
  if (!rank && !size) return std::nullopt;
  if (!rank || !size) {
    throw UsageError(
        text("%s is set and %s is not: %s sets both; set or unset both, or give --launcher none",
             variables.quoted(rank ? family.rank : family.size).c_str(), rank ? family.size : family.rank,
             family.tool));
  }
  Job job;
  job.processes = static_cast<int>(variables.number(family.size, 1, kMaxRanks));
  job.index =
      static_cast<int>(variables.number(family.rank, 0, static_cast<std::uint64_t>(job.processes) - 1));
  job.tool = family.tool;
  job.said = variables.quoted(family.rank) + ", " + variables.quoted(family.size);
  if (family.local_size != nullptr && variables.has(family.local_size)) {
    const auto most = static_cast<std::uint64_t>(job.processes);
    const std::uint64_t local = variables.number(family.local_size, 1, most);
    job.one_host = local == most;
    job.said += ", " + variables.quoted(family.local_size);
  }
  return job;
}

void refuse_contradiction(const std::string& one, const std::string& other) {
  throw UsageError(text("%s and %s contradict each other: unset what is not meant, or give --launcher none",
                        one.c_str(), other.c_str()));
}

// torchrun's own store listens on MASTER_PORT, so ranks meet on the next one.
std::string torch_address(const Variables& variables, const Job& job) {
  for (const char* const name : {"MASTER_ADDR", "MASTER_PORT"}) {
    if (variables.has(name)) continue;
    throw UsageError(text("%s is not set, although %s are: set it, or give --rendezvous HOST:PORT", name,
                          job.said.c_str()));
  }
  const std::uint64_t port = variables.number("MASTER_PORT", 1, kMaxPort - 1) + 1;
  const std::string host = variables.value("MASTER_ADDR");
  const bool is_ipv6 = host.find(':') != std::string::npos && host.front() != '[';
  return text(is_ipv6 ? "[%s]:%d" : "%s:%d", host.c_str(), static_cast<int>(port));
}

Job finish_torch(const Variables& variables, Job job) {
  job.name = starter(kTorch.rank);
  const bool meets_at_address = job.processes > 1 && !job.one_host.value_or(false);
  if (meets_at_address) job.address = torch_address(variables, job);
  return job;
}

Job finish_mpi(const Variables& variables, const Family& family, Job job) {
  job.name = starter(family.rank);
  for (const char* const name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"}) {
    if (!variables.has(name)) continue;
    job.name = variables.value(name);
    break;
  }
  return job;
}

std::optional<Job> read_slurm(const Variables& variables) {
  // A batch script has the variables of its job, but runs once: srun is what numbers processes.
  const bool is_script = variables.has("SLURM_JOB_ID") && !variables.has("SLURM_STEP_ID");
  if (!variables.has(kSlurm.rank) || is_script) return std::nullopt;
  Family family = kSlurm;
  if (variables.has("SLURM_STEP_NUM_TASKS")) family.size = "SLURM_STEP_NUM_TASKS";
  std::optional<Job> job = read_family(variables, family);
  for (const char* const nodes : {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"}) {
    if (!variables.has(nodes)) continue;
    job->one_host = variables.number(nodes, 1, UINT32_MAX) == 1;
    job->said += ", " + variables.quoted(nodes);
    break;
  }
  job->name = variables.has("SLURM_STEP_ID")
                  ? variables.value("SLURM_JOB_ID") + "." + variables.value("SLURM_STEP_ID")
                  : starter(family.rank);
  return job;
}

// Of mpirun, mpiexec and a RANK set by hand, all that are there must say the same.
std::optional<Job> read_mpi_or_torch(const Variables& variables) {
  std::optional<Job> first;
  bool is_torch = false;
  for (const Family* const family : {&kOpenMpi, &kPmi, &kTorch}) {
    std::optional<Job> job = read_family(variables, *family);
    if (!job) continue;
    if (first) {
      if (first->index != job->index || first->processes != job->processes) {
        refuse_contradiction(first->said, job->said);
      }
      continue;
    }
    is_torch = family == &kTorch;
    first = is_torch ? finish_torch(variables, *job) : finish_mpi(variables, *family, *job);
  }
  return first;
}

}  // namespace

std::optional<Job> find_job(const GetVariable& get) {
  const Variables variables(get);
  // torchrun may have been started by any of the others, whose variables then number something else.
  if (variables.has("TORCHELASTIC_RUN_ID")) {
    if (const std::optional<Job> job = read_family(variables, kTorch)) return finish_torch(variables, *job);
  }
  std::optional<Job> job = read_mpi_or_torch(variables);
  // srun likewise is what starts mpirun's own processes.
  if (!job) job = read_slurm(variables);
  if (!variables.has("PMIX_RANK")) return job;
  if (!job) {
    throw UsageError(
        text("%s is set, and no variable says how many processes there are: give --rank, --world "
             "and --rendezvous, or --launcher none",
             variables.quoted("PMIX_RANK").c_str()));
  }
  if (variables.number("PMIX_RANK", 0, kMaxRanks) != static_cast<std::uint64_t>(job->index)) {
    refuse_contradiction(job->said, variables.quoted("PMIX_RANK"));
  }
  return job;
}

}  // namespace rocenante::bench
