// A report's environment put together from made-up probes: which variables it shows, and where each fact ends up.
#include "launch/environment.hpp"

#include <fmt/format.h>
#include <catch2/catch.hpp>

using namespace shardscope;
using namespace shardscope::launch;

namespace {

using Variables = std::map<std::string, std::string>;

std::chrono::system_clock::time_point at(int64_t seconds, int64_t milliseconds = 0) {
  return std::chrono::system_clock::time_point(std::chrono::milliseconds(1000 * seconds + milliseconds));
}

EnvironmentProbes a_run() {
  EnvironmentProbes probes{.now = at(0), .host = "node7", .launcher = "mpirun", .mpi = "Open MPI v4.1.4"};
  probes.system.kernel = "Linux 6.1.0";
  probes.system.memory_bytes = 64'000'000'000;
  probes.place.host.model = "AMD EPYC 9354";
  probes.place.host.allowed_cores = {2, 3, 5};
  probes.place.host.cpu_quota = 2.5;
  probes.place.host.last_level_caches = {{1000, {2, 3}}, {500, {5}}};
  probes.place.host.memory_bytes = 8'000'000'000;
  probes.place.threads = 3;
  probes.place.oversubscribed = true;
  probes.backend = "cpu: AVX2, 3 threads";
  probes.build.version = "1.2.3";
  probes.build.commit = "abc";
  probes.ranks = {{.rank = 0, .host = "node7", .launcher_cores = {2}, .cores = {2, 3, 5}}};
  probes.variables = {"HOME=/home/me", "OMP_NUM_THREADS=4"};
  return probes;
}

}  // namespace

TEST_CASE("environment_of: every fact in its field") {
  const runtime::Environment environment = environment_of(a_run());
  CHECK(environment.time == "1970-01-01T00:00:00Z");
  CHECK(environment.host == "node7");
  CHECK(environment.system.kernel == "Linux 6.1.0");
  CHECK(environment.system.memory_bytes == 64'000'000'000);
  CHECK(environment.cpu == "AMD EPYC 9354");
  CHECK(environment.allowed_cores == 3);
  CHECK(environment.cpu_quota_cores == 2.5);
  CHECK(environment.last_level_cache_bytes == 1500);
  CHECK(environment.memory_limit_bytes == 8'000'000'000);
  CHECK(environment.backend == "cpu: AVX2, 3 threads");
  CHECK(environment.threads_per_rank == 3);
  CHECK(environment.oversubscribed);
  CHECK(environment.mpi == "Open MPI v4.1.4");
  CHECK(environment.build.version == "1.2.3");
  CHECK(environment.build.commit == "abc");
  CHECK(environment.launcher == "mpirun");
  REQUIRE(environment.ranks.size() == 1);
  CHECK(environment.ranks[0].launcher_cores == std::vector<int>{2});
  CHECK(environment.ranks[0].cores == std::vector<int>{2, 3, 5});
  CHECK(environment.variables == Variables{{"OMP_NUM_THREADS", "4"}});
}

TEST_CASE("environment_of: Apptainer's variables name the container where its files do not") {
  EnvironmentProbes probes = a_run();
  CHECK(environment_of(probes).system.container.empty());
  probes.variables = {"APPTAINER_CONTAINER_EXTRA=1", "APPTAINER_CONTAINER="};
  CHECK(environment_of(probes).system.container.empty());
  probes.variables = {"SINGULARITY_CONTAINER=/images/run.sif"};
  CHECK(environment_of(probes).system.container == "apptainer");
  CHECK(environment_of(probes).variables.empty());
  probes.system.container = "docker";
  CHECK(environment_of(probes).system.container == "docker");
}

TEST_CASE("reported_variables: those that change how a run behaves") {
  const Variables shown = {{"NCCL_P2P_LEVEL", "SYS"},
                           {"CUDA_VISIBLE_DEVICES", "0,1"},
                           {"OMPI_MCA_btl", "self,vader"},
                           {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"},
                           {"OMPI_MCA_mpi_yield_when_idle", "1"},
                           {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                           {"OMPI_MCA_hwloc_base_binding_policy", "none"},
                           {"UCX_TLS", "shm"},
                           {"SLURM_JOB_ID", "17"},
                           {"SLURM_CPU_BIND", "quiet,mask_cpu:0x3"},
                           {"OMP_NUM_THREADS", "4"},
                           {"MALLOC_ARENA_MAX", "2"},
                           {"GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"},
                           {"LD_PRELOAD", ""}};
  std::vector<std::string> variables;
  for (const auto& [name, value] : shown) variables.push_back(fmt::format("{}={}", name, value));
  CHECK(reported_variables(variables) == shown);
}

TEST_CASE("reported_variables: nothing else, above all no secret") {
  CHECK(
      reported_variables({"HOME=/home/me", "PATH=/bin", "HF_TOKEN=hf_secret", "AWS_SECRET_ACCESS_KEY=secret",
                          "SLURM_JWT=secret", "SLURM_SPANK_KEY=secret", "OMPI_MCA_orte_precondition_transports=secret",
                          "OMPI_MCA_orte_hnp_uri=1.0;tcp://10.0.0.1:39685", "OMPI_MCA_ess_base_jobid=12",
                          "OMPI_MCA_initial_wdir=/home/me", "PMIX_SERVER_URI41=1.0;tcp4://127.0.0.1:51401",
                          "MY_NCCL_DEBUG=INFO", "LD_PRELOAD_PATH=x", "OMP_NUM_THREADS", ""})
          .empty());
}

TEST_CASE("reported_variables: a value may hold anything, and of a name that stands twice the first counts") {
  CHECK(reported_variables({"NCCL_DEBUG=a=b\nc", "NCCL_DEBUG=later"}) == Variables{{"NCCL_DEBUG", "a=b\nc"}});
}

TEST_CASE("utc_text: ISO 8601, whole seconds rounded down") {
  CHECK(utc_text(at(0)) == "1970-01-01T00:00:00Z");
  CHECK(utc_text(at(951'782'399, 999)) == "2000-02-28T23:59:59Z");  // date -u -d @951782399
  CHECK(utc_text(at(951'782'400)) == "2000-02-29T00:00:00Z");
  CHECK(utc_text(at(1'735'689'599)) == "2024-12-31T23:59:59Z");
  CHECK(utc_text(at(-1, -1)) == "1969-12-31T23:59:58Z");
}

TEST_CASE("build_facts: version, compiler, build type, and a version of every library") {
  const runtime::BuildFacts build = build_facts();
  CHECK(build.version.find_first_not_of("0123456789.") == std::string::npos);
  CHECK_FALSE(build.compiler.empty());
  CHECK_FALSE(build.build_type.empty());
  for (const char* name : {"boost", "fmt", "highway", "hwloc", "nlohmann_json", "pcre2", "utf8proc"}) {
    INFO(name);
    REQUIRE(build.libraries.count(name) == 1);
    const std::string& version = build.libraries.at(name);
    CHECK(version.find_first_of("0123456789") == 0);
    CHECK(version.find('.') != std::string::npos);
  }
  CHECK(build.libraries.size() == 7);
  CHECK(version_text().starts_with(build.version));
}
