#include "launch/environment.hpp"

#include <filesystem>

#include <sys/utsname.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace shardscope::launch {
namespace {

/// Variables that change how a run behaves; others are nobody's business.
constexpr const char* kReportedVariables[] = {"OMPI_MCA_mpi_yield_when_idle",
                                              "OMPI_MCA_rmaps_base_oversubscribe",
                                              "OMPI_MCA_hwloc_base_binding_policy",
                                              "OMPI_MCA_btl",
                                              "SLURM_JOB_ID",
                                              "SLURM_NTASKS",
                                              "SLURM_CPUS_PER_TASK",
                                              "SLURM_CPU_BIND",
                                              "CUDA_VISIBLE_DEVICES",
                                              "OMP_NUM_THREADS"};

std::string container_kind() {
  if (std::filesystem::exists("/.dockerenv")) return "docker";
  if (std::filesystem::exists("/run/.containerenv")) return "podman";
  if (read_environment("APPTAINER_CONTAINER") || read_environment("SINGULARITY_CONTAINER")) return "apptainer";
  return "";
}

std::string kernel_text() {
  utsname name{};
  return uname(&name) == 0 ? fmt::format("{} {}", name.sysname, name.release) : "";
}

}  // namespace

std::string version_text() {
  const std::string commit = SHARDSCOPE_COMMIT;
  return commit.empty() ? SHARDSCOPE_VERSION : fmt::format("{} (commit {})", SHARDSCOPE_VERSION, commit);
}

runtime::Environment capture_environment(Session& session, const Place& place, const std::string& backend) {
  parallel::World& world = session.world;
  runtime::Environment environment{
      .host = world.host(),
      .kernel = kernel_text(),
      .cpu = place.host.model,
      .allowed_cores = static_cast<int64_t>(place.host.allowed_cores.size()),
      .cpu_quota_cores = place.host.cpu_quota,
      .last_level_cache_bytes = topology::cache_bytes_of(place.host, place.host.allowed_cores),
      .memory_bytes = place.host.memory_bytes,
      .numa_nodes = place.host.numa_nodes,
      .backend = backend,
      .threads_per_rank = place.threads,
      .oversubscribed = place.oversubscribed,
      .mpi = world.mpi_version(),
      .compiler = fmt::format("g++ {}", __VERSION__),
      .version = version_text(),
      .launcher = session.launcher.name,
      .container = container_kind()};
  const nlohmann::json masks = {{"launcher", place.host.launcher_cores}, {"ours", place.cores}};
  const std::vector<std::string> all = world.all_gather_text(masks.dump(), "core masks");
  for (int rank = 0; rank < world.size(); ++rank) {
    const nlohmann::json theirs = nlohmann::json::parse(all[static_cast<size_t>(rank)]);
    environment.ranks.push_back({.rank = rank,
                                 .host = world.hosts()[static_cast<size_t>(rank)],
                                 .launcher_cores = theirs.at("launcher").get<std::vector<int>>(),
                                 .cores = theirs.at("ours").get<std::vector<int>>()});
  }
  for (const char* name : kReportedVariables) {
    if (const std::optional<std::string> value = read_environment(name)) environment.variables[name] = *value;
  }
  return environment;
}

}  // namespace shardscope::launch
