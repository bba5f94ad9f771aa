// SPDX-License-Identifier: Apache-2.0
#include "bench/cli/environment.h"

#include <map>

#include "bench/cli/options.h"
#include "bench/cli/text.h"
#include "tests/support/catch.h"

using namespace rocenante::bench;

namespace {

using Environment = std::map<std::string, std::string>;

std::optional<Job> job_in(const Environment& environment) {
  return find_job([&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

std::string refusal(const Environment& environment) {
  try {
    job_in(environment);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

Environment with(Environment base, const Environment& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

const Environment kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                              {"OMPI_COMM_WORLD_SIZE", "4"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                              {"PMIX_RANK", "1"},
                              {"PMIX_NAMESPACE", "2027683841"}};
const Environment kMpich = {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MPI_LOCALNRANKS", "3"}};
const Environment kSlurm = {{"SLURM_PROCID", "1"},
                            {"SLURM_NTASKS", "2"},
                            {"SLURM_JOB_ID", "77"},
                            {"SLURM_STEP_ID", "0"},
                            {"SLURM_STEP_NUM_NODES", "1"}};
const Environment kTorch = {
    {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}};

}  // namespace

TEST_CASE("a process that nobody numbered is in no job") {
  CHECK_FALSE(job_in({}));
  CHECK_FALSE(job_in({{"RANK", ""}, {"WORLD_SIZE", ""}, {"PATH", "/bin"}}));
  // A session of salloc, and a batch script, which runs once whatever its job's variables say.
  CHECK_FALSE(job_in({{"SLURM_JOB_ID", "77"}, {"SLURM_NTASKS", "8"}}));
  CHECK_FALSE(job_in({{"SLURM_JOB_ID", "77"}, {"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}));
}

TEST_CASE("each tool's numbers are understood") {
  struct Case {
    Environment environment;
    const char* tool;
    int index;
    int processes;
    std::optional<bool> one_host;
    const char* name;  // nullptr: of the process that started it
    const char* address;
  };
  const Case kCases[] = {
      {kOpenMpi, "mpirun", 1, 4, true, "2027683841", ""},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}), "mpirun", 1, 4, false, "2027683841", ""},
      {kMpich, "mpiexec", 2, 3, true, nullptr, ""},
      {with(kMpich, {{"MPI_LOCALNRANKS", "1"}}), "mpiexec", 2, 3, false, nullptr, ""},
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}, {"PMI_JOBID", "9.1"}}, "mpiexec", 0, 1, {}, "9.1", ""},
      {kSlurm, "srun", 1, 2, true, "77.0", ""},
      {with(kSlurm, {{"SLURM_STEP_NUM_NODES", "2"}}), "srun", 1, 2, false, "77.0", ""},
      {with(kSlurm, {{"SLURM_NTASKS", "8"}, {"SLURM_STEP_NUM_TASKS", "3"}}), "srun", 1, 3, true, "77.0",
       ""},
      {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}}, "srun", 0, 2, {}, nullptr, ""},
      {kTorch, "torchrun", 1, 2, {}, nullptr, "node0:29501"},
      {with(kTorch, {{"MASTER_ADDR", "fd00::1"}}), "torchrun", 1, 2, {}, nullptr, "[fd00::1]:29501"},
      {with(kTorch, {{"LOCAL_WORLD_SIZE", "1"}}), "torchrun", 1, 2, false, nullptr, "node0:29501"},
      // All on one host: no address and no secret is needed.
      {with(kTorch, {{"LOCAL_WORLD_SIZE", "2"}}), "torchrun", 1, 2, true, nullptr, ""},
      {{{"RANK", "0"}, {"WORLD_SIZE", "1"}}, "torchrun", 0, 1, {}, nullptr, ""},
  };
  for (const Case& expected : kCases) {
    const std::optional<Job> job = job_in(expected.environment);
    REQUIRE(job);
    INFO(job->said);
    CHECK(job->tool == expected.tool);
    CHECK(job->index == expected.index);
    CHECK(job->processes == expected.processes);
    CHECK(job->one_host == expected.one_host);
    CHECK(job->address == expected.address);
    if (expected.name != nullptr) {
      CHECK(job->name == expected.name);
    } else {
      CHECK(job->name.starts_with("process "));
    }
  }
}

TEST_CASE("the tool that started this process counts, not those around it") {
  // srun or mpirun started one torchrun a host, mpirun was started by srun.
  const Environment torchrun = with(kTorch, {{"TORCHELASTIC_RUN_ID", "none"}});
  CHECK(job_in(with(kSlurm, with(torchrun, {{"SLURM_PROCID", "0"}})))->tool == "torchrun");
  CHECK(job_in(with(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"}}), torchrun))->tool == "torchrun");
  CHECK(job_in(with(kSlurm, kOpenMpi))->tool == "mpirun");
  // A script that hands mpirun's numbers on as RANK and WORLD_SIZE.
  CHECK(job_in(with(kOpenMpi, with(kTorch, {{"WORLD_SIZE", "4"}})))->tool == "mpirun");
}

TEST_CASE("variables that are missing, senseless or at odds are refused by name and value") {
  struct Case {
    Environment environment;
    std::vector<const char*> words;
  };
  const Case kCases[] = {
      {{{"RANK", "1"}}, {"RANK '1'", "WORLD_SIZE"}},
      {{{"WORLD_SIZE", "2"}}, {"WORLD_SIZE '2'", "RANK is not"}},
      {{{"OMPI_COMM_WORLD_SIZE", "2"}}, {"OMPI_COMM_WORLD_SIZE '2'", "OMPI_COMM_WORLD_RANK"}},
      {{{"PMI_RANK", "0"}}, {"PMI_RANK '0'", "PMI_SIZE"}},
      {{{"SLURM_PROCID", "0"}}, {"SLURM_PROCID '0'", "SLURM_NTASKS"}},
      {{{"PMIX_RANK", "0"}}, {"PMIX_RANK '0'", "--rank"}},
      {with(kTorch, {{"RANK", "2"}}), {"RANK '2'", "0 to 1"}},
      {with(kTorch, {{"RANK", "-1"}}), {"RANK '-1'", "0 to 1"}},
      {with(kTorch, {{"WORLD_SIZE", "two"}}), {"WORLD_SIZE 'two'", "1 to 1024"}},
      {with(kTorch, {{"WORLD_SIZE", "0"}}), {"WORLD_SIZE '0'", "1 to 1024"}},
      {with(kTorch, {{"MASTER_ADDR", ""}}), {"MASTER_ADDR is not set", "--rendezvous"}},
      {with(kTorch, {{"MASTER_PORT", "65535"}}), {"MASTER_PORT '65535'", "1 to 65534"}},
      {with(kTorch, {{"LOCAL_WORLD_SIZE", "3"}}), {"LOCAL_WORLD_SIZE '3'", "1 to 2"}},
      {with(kMpich, {{"PMI_RANK", "3"}}), {"PMI_RANK '3'", "0 to 2"}},
      {with(kSlurm, {{"SLURM_PROCID", "1x"}}), {"SLURM_PROCID '1x'", "0 to 1"}},
      {with(kSlurm, {{"SLURM_STEP_NUM_NODES", "many"}}), {"SLURM_STEP_NUM_NODES 'many'"}},
      {with(kOpenMpi, {{"PMIX_RANK", "2"}}), {"OMPI_COMM_WORLD_RANK '1'", "PMIX_RANK '2'", "contradict"}},
      {with(kOpenMpi, kTorch), {"OMPI_COMM_WORLD_SIZE '4'", "WORLD_SIZE '2'", "contradict"}},
      {with(kOpenMpi, kMpich), {"OMPI_COMM_WORLD_RANK '1'", "PMI_RANK '2'", "contradict"}},
  };
  for (const Case& bad : kCases) {
    const std::string message = refusal(bad.environment);
    for (const char* const word : bad.words) {
      INFO("message '" << message << "' should hold '" << word << "'");
      CHECK(message.find(word) != std::string::npos);
    }
  }
}
