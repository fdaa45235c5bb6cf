#include "launch/environment.hpp"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace shardscope::launch {
namespace {

/// Variables that change how a run behaves; others are nobody's business. Slurm's are named one by one, because
/// SLURM_JWT is a password; Open MPI's by framework, because mpirun hands each rank addresses and a key of the job in
/// others (OMPI_MCA_orte_…).
constexpr std::string_view kReportedPrefixes[] = {"CUDA_",          "GOMP_",          "KMP_",          "MALLOC_",
                                                  "NCCL_",          "OMP_",           "UCX_",          "OMPI_MCA_btl",
                                                  "OMPI_MCA_coll",  "OMPI_MCA_hwloc", "OMPI_MCA_mpi_", "OMPI_MCA_mtl",
                                                  "OMPI_MCA_opal_", "OMPI_MCA_osc",   "OMPI_MCA_pml",  "OMPI_MCA_rmaps",
                                                  "OMPI_MCA_smsc",  "PRTE_MCA_hwloc", "PRTE_MCA_rmaps"};
constexpr std::string_view kReportedNames[] = {
    "GLIBC_TUNABLES",      "LD_PRELOAD",         "SLURM_CPU_BIND",        "SLURM_CPU_FREQ_REQ",    "SLURM_CPUS_ON_NODE",
    "SLURM_CPUS_PER_TASK", "SLURM_DISTRIBUTION", "SLURM_GPUS_ON_NODE",    "SLURM_GPUS_PER_TASK",   "SLURM_GPU_BIND",
    "SLURM_HINT",          "SLURM_JOB_ID",       "SLURM_JOB_NUM_NODES",   "SLURM_JOB_PARTITION",   "SLURM_MEM_BIND",
    "SLURM_MEM_PER_NODE",  "SLURM_NTASKS",       "SLURM_NTASKS_PER_NODE", "SLURM_THREADS_PER_CORE"};

bool is_reported(std::string_view name) {
  return std::find(std::begin(kReportedNames), std::end(kReportedNames), name) != std::end(kReportedNames) ||
         std::any_of(std::begin(kReportedPrefixes), std::end(kReportedPrefixes),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::string value_of(const std::vector<std::string>& variables, std::string_view name) {
  for (const std::string& variable : variables) {
    if (variable.starts_with(name) && variable.size() > name.size() && variable[name.size()] == '=')
      return variable.substr(name.size() + 1);
  }
  return "";
}

/// Apptainer can run without leaving its mark in the file system, but not without these.
std::string container_of(const EnvironmentProbes& probes) {
  if (!probes.system.container.empty()) return probes.system.container;
  for (const char* name : {"APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"}) {
    if (!value_of(probes.variables, name).empty()) return "apptainer";
  }
  return "";
}

std::vector<std::string> own_variables() {
  std::vector<std::string> variables;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    variables.emplace_back(*variable);
  }
  return variables;
}

std::string version_in(const std::map<std::string, std::string>& versions, const std::string& name) {
  const auto found = versions.find(name);
  return found == versions.end() ? std::string() : found->second;
}

std::vector<runtime::DeviceEntry> device_entries(const Engine& engine) {
  constexpr double kKilo = 1e3;
  std::vector<runtime::DeviceEntry> entries;
  for (size_t rank = 0; rank < engine.devices.size(); ++rank) {
    const cuda::DeviceFacts& facts = engine.devices[rank].facts;
    entries.push_back({.rank = static_cast<int>(rank),
                       .ordinal = facts.ordinal,
                       .name = facts.name,
                       .uuid = facts.uuid,
                       .pci_bus_id = facts.pci_bus_id,
                       .compute_capability = fmt::format("{}.{}", facts.compute_major, facts.compute_minor),
                       .memory_bytes = facts.memory_bytes,
                       .multiprocessors = facts.multiprocessors,
                       .l2_bytes = facts.l2_bytes,
                       .mhz = facts.clock_khz / kKilo,
                       .memory_mhz = facts.memory_clock_khz / kKilo,
                       .memory_bus_bits = facts.memory_bus_bits});
  }
  return entries;
}

/// Collective: every rank's host and masks.
std::vector<runtime::RankPlace> gather_places(parallel::World& world, const Place& place, const Engine& engine) {
  const nlohmann::json masks = {{"launcher", place.host.launcher_cores}, {"ours", place.cores}};
  const std::vector<std::string> all = world.all_gather_text(masks.dump(), "core masks");
  std::vector<runtime::RankPlace> places;
  for (int rank = 0; rank < world.size(); ++rank) {
    const nlohmann::json theirs = nlohmann::json::parse(all[static_cast<size_t>(rank)]);
    places.push_back({.rank = rank,
                      .host = world.hosts()[static_cast<size_t>(rank)],
                      .device = engine.on_devices() ? engine.devices[static_cast<size_t>(rank)].facts.uuid : "cpu",
                      .launcher_cores = theirs.at("launcher").get<std::vector<int>>(),
                      .cores = theirs.at("ours").get<std::vector<int>>()});
  }
  return places;
}

}  // namespace

std::map<std::string, std::string> reported_variables(const std::vector<std::string>& variables) {
  std::map<std::string, std::string> reported;
  for (const std::string& variable : variables) {
    const size_t equals = variable.find('=');
    if (equals == std::string::npos || !is_reported(std::string_view(variable).substr(0, equals))) continue;
    reported.emplace(variable.substr(0, equals), variable.substr(equals + 1));
  }
  return reported;
}

std::string utc_text(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(std::chrono::floor<std::chrono::seconds>(time));
  std::tm parts{};
  if (gmtime_r(&seconds, &parts) == nullptr) return "";
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

runtime::Environment environment_of(const EnvironmentProbes& probes) {
  const topology::HostCpu& host = probes.place.host;
  runtime::Environment environment{.time = utc_text(probes.now),
                                   .host = probes.host,
                                   .system = probes.system,
                                   .cpu = host.model,
                                   .allowed_cores = static_cast<int64_t>(host.allowed_cores.size()),
                                   .cpu_quota_cores = host.cpu_quota,
                                   .last_level_cache_bytes = topology::cache_bytes_of(host, host.allowed_cores),
                                   .memory_limit_bytes = host.memory_bytes,
                                   .backend = probes.backend,
                                   .devices = probes.devices,
                                   .cuda = version_in(probes.versions, "CUDA"),
                                   .nccl = version_in(probes.versions, "NCCL"),
                                   .threads_per_rank = probes.place.threads,
                                   .oversubscribed = probes.place.oversubscribed,
                                   .mpi = probes.mpi,
                                   .build = probes.build,
                                   .launcher = probes.launcher,
                                   .ranks = probes.ranks,
                                   .variables = reported_variables(probes.variables)};
  for (const auto& [name, version] : probes.versions) environment.build.libraries.emplace(name, version);
  environment.system.container = container_of(probes);
  return environment;
}

runtime::Environment capture_environment(Session& session, const Place& place, const Engine& engine) {
  parallel::World& world = session.world;
  return environment_of({.now = std::chrono::system_clock::now(),
                         .system = topology::probe_system(),
                         .place = place,
                         .host = world.host(),
                         .launcher = session.launcher.name,
                         .mpi = world.mpi_version(),
                         .backend = engine.backend->description(),
                         .devices = device_entries(engine),
                         .versions = engine.versions,
                         .build = build_facts(),
                         .ranks = gather_places(world, place, engine),
                         .variables = own_variables()});
}

}  // namespace shardscope::launch
