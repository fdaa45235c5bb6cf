// Cores, memory, shared memory, and what else is known to slow ranks of one host down.
#include <algorithm>

#include <fmt/format.h>

#include "launch/doctor_checks.hpp"

namespace shardscope::launch {
namespace {

constexpr int64_t kMebi = int64_t{1} << 20;
constexpr int64_t kGibi = int64_t{1} << 30;

bool switched_off(const std::string& value) {
  return value == "0" || value == "false" || value == "no" || value == "disabled";
}

/// Idle ranks that do not give their core away cost a scheduler's time slice for each message.
void check_cores(const HostFacts& host, Ranks ranks, Findings& out) {
  const int64_t usable = host.cpu.usable_cores();
  const auto here = static_cast<int64_t>(ranks.size());
  int64_t busy = 0;
  for (const RankFacts& rank : ranks) busy += rank.threads;
  const int threads = ranks.empty() ? 1 : ranks.front().threads;
  const std::string evidence = fmt::format("{} of {} on {}", count_text(here, "rank"), count_text(threads, "thread"),
                                           count_text(usable, "usable core"));
  if (busy <= usable) {
    out.push_back({.check = "cores", .verdict = Verdict::kOk, .evidence = evidence, .remedy = ""});
    return;
  }
  const bool yields = !switched_off(variable_of(ranks, "OMPI_MCA_mpi_yield_when_idle"));
  const std::string fewer = "fewer ranks, or more cores (docker --cpus, srun --cpus-per-task)";
  if (yields) {
    out.push_back({.check = "cores",
                   .verdict = Verdict::kWarning,
                   .evidence = evidence + ": ranks take turns, so figures show overhead instead of scaling",
                   .remedy = fewer});
  } else {
    out.push_back({.check = "cores",
                   .verdict = Verdict::kProblem,
                   .evidence = evidence + ", and OMPI_MCA_mpi_yield_when_idle is off: ranks that wait keep the core "
                                          "from those that work",
                   .remedy = "unset OMPI_MCA_mpi_yield_when_idle (shardscope sets it); " + fewer});
  }
}

void check_quota(const HostFacts& host, Findings& out) {
  const auto cores = static_cast<int64_t>(host.cpu.allowed_cores.size());
  if (!host.cpu.cpu_quota) {
    out.push_back({.check = "CPU quota",
                   .verdict = Verdict::kOk,
                   .evidence = fmt::format("none, {} in the cpuset", count_text(cores, "core")),
                   .remedy = ""});
    return;
  }
  const double quota = *host.cpu.cpu_quota;
  const bool less = quota < static_cast<double>(cores);
  out.push_back(
      {.check = "CPU quota",
       .verdict = less ? Verdict::kWarning : Verdict::kOk,
       .evidence = fmt::format("time of {:.3g} cores for {} in the cpuset{}", quota, count_text(cores, "core"),
                               less ? ": whoever uses more is stopped for the rest of each period" : ""),
       .remedy = less ? "a higher limit (docker --cpus, limits.cpu of Kubernetes), or a cpuset of as many cores "
                        "(docker --cpuset-cpus)"
                      : ""});
}

/// Less than this for each rank: not even a model of some hundred million parameters fits.
constexpr int64_t kLeastMemoryOfRank = kGibi;

void check_memory(const HostFacts& host, Ranks ranks, Findings& out) {
  const topology::SystemFacts& system = host.system;
  if (!system.memory_bytes || !system.memory_available_bytes) {
    out.push_back({.check = "memory",
                   .verdict = Verdict::kUnknown,
                   .evidence = "/proc/meminfo cannot be read",
                   .remedy = "mount /proc, as containers do"});
    return;
  }
  const bool limited = host.memory_limit_bytes && *host.memory_limit_bytes < *system.memory_bytes;
  const int64_t available =
      limited ? std::min(*host.memory_limit_bytes, *system.memory_available_bytes) : *system.memory_available_bytes;
  const bool small = available < kLeastMemoryOfRank * static_cast<int64_t>(ranks.size());
  out.push_back(
      {.check = "memory",
       .verdict = small ? Verdict::kWarning : Verdict::kOk,
       .evidence = fmt::format(
           "{} available of {}{}{}", memory_text(*system.memory_available_bytes), memory_text(*system.memory_bytes),
           limited
               ? fmt::format(", the control group allows {}, /dev/shm included", memory_text(*host.memory_limit_bytes))
               : ", no limit by a control group",
           small
               ? fmt::format(": less than 1 GiB for each of {}", count_text(static_cast<int64_t>(ranks.size()), "rank"))
               : ""),
       .remedy = small ? "free memory, or raise the limit (docker --memory); --dry-run says what a model needs" : ""});
}

/// A container's usual /dev/shm has 64 MiB: Open MPI takes 4 MiB of it for each rank, sums and NCCL's host buffers the
/// rest. Who touches a page that it has no room for is killed (bus error).
void check_shared_memory(const HostFacts& host, Ranks ranks, Findings& out) {
  constexpr int64_t kTakenByMpi = 4 * kMebi;
  constexpr int64_t kWantedByRank = 64 * kMebi;
  constexpr const char* kRemedy =
      "docker --shm-size=1g (or --ipc=host), an emptyDir of medium Memory in Kubernetes, "
      "or as root: mount -o remount,size=1g /dev/shm";
  if (!host.shared_memory) {
    out.push_back({.check = "/dev/shm",
                   .verdict = ranks.size() > 1 ? Verdict::kProblem : Verdict::kWarning,
                   .evidence = "not there: ranks of a host have no memory in common",
                   .remedy = "mount a tmpfs at /dev/shm"});
    return;
  }
  const HostFacts::Room& room = *host.shared_memory;
  const auto here = static_cast<int64_t>(ranks.size());
  const std::string evidence = fmt::format("{} free of {}", memory_text(room.free_bytes), memory_text(room.bytes));
  if (here > 1 && room.free_bytes < kTakenByMpi * here) {
    out.push_back({.check = "/dev/shm",
                   .verdict = Verdict::kProblem,
                   .evidence = fmt::format("{}: Open MPI alone takes {} for {} ranks, and ends with a bus error",
                                           evidence, memory_text(kTakenByMpi * here), here),
                   .remedy = kRemedy});
  } else if (room.free_bytes < kWantedByRank * std::max<int64_t>(2, here)) {
    out.push_back({.check = "/dev/shm",
                   .verdict = Verdict::kWarning,
                   .evidence = evidence + ": little for NCCL's buffers and large sums, which end with a bus error "
                                          "where there is no room",
                   .remedy = kRemedy});
  } else {
    out.push_back({.check = "/dev/shm", .verdict = Verdict::kOk, .evidence = evidence, .remedy = ""});
  }
}

/// Network cards, and the driver in some containers, need memory that stays where it is. Linux gives 8 MiB since 5.16.
void check_locked_memory(const HostFacts& host, Ranks ranks, Findings& out) {
  constexpr int64_t kUsual = 8 * kMebi;
  const bool network = host.infiniband;
  bool small = false;
  for (const RankFacts& rank : ranks) {
    small = small || (rank.locked_bytes && (network || *rank.locked_bytes < kUsual));
  }
  const std::string limits = grouped(ranks, [](const RankFacts& rank) {
    return rank.locked_bytes ? memory_text(*rank.locked_bytes) : std::string("no limit");
  });
  out.push_back(
      {.check = "locked memory",
       .verdict = small ? Verdict::kWarning : Verdict::kOk,
       .evidence = !small    ? limits
                   : network ? limits + ": InfiniBand and RoCE cards need all that they send from"
                             : limits + ": NCCL and MPI fail where they register more memory than that",
       .remedy = small ? "ulimit -l unlimited before mpirun (docker --ulimit memlock=-1, LimitMEMLOCK=infinity of a "
                         "service)"
                       : ""});
}

void check_swap(const HostFacts& host, Findings& out) {
  if (!host.swap_used_bytes) return;
  const bool used = *host.swap_used_bytes >= kGibi;
  out.push_back({.check = "swap",
                 .verdict = used ? Verdict::kWarning : Verdict::kOk,
                 .evidence = *host.swap_used_bytes == 0 ? "none is used"
                                                        : fmt::format("{} in use{}", memory_text(*host.swap_used_bytes),
                                                                      used ? ": weights may be fetched from disk" : ""),
                 .remedy = used ? "free memory, then swapoff -a and swapon -a" : ""});
}

void check_numa_balancing(const HostFacts& host, Findings& out) {
  if (host.system.numa_nodes.size() < 2 || !host.system.numa_balancing) return;
  const bool on = *host.system.numa_balancing;
  out.push_back({.check = "NUMA balancing",
                 .verdict = on ? Verdict::kWarning : Verdict::kOk,
                 .evidence = on ? "on: the kernel takes pages away to see who uses them, and moves them" : "off",
                 .remedy = on ? "as root: sysctl kernel.numa_balancing=0" : ""});
}

void check_neighbours(const HostFacts& host, Findings& out) {
  constexpr double kMuchStolen = 0.02;
  constexpr double kMuchLoad = 0.5;  // of the cores
  if (host.stolen_share) {
    const bool much = *host.stolen_share > kMuchStolen;
    out.push_back(
        {.check = "stolen time",
         .verdict = much ? Verdict::kWarning : Verdict::kOk,
         .evidence = fmt::format("{:.1f} % of the busy time since the start of the host{}", *host.stolen_share * 100,
                                 much ? ": the hypervisor gives the cores to others meanwhile" : ""),
         .remedy = much ? "an instance with cores of its own; trust no figure whose verdicts say noise" : ""});
  }
  if (host.system.load_average) {
    const double load = *host.system.load_average;
    const auto cores = static_cast<double>(std::max<size_t>(1, host.cpu.allowed_cores.size()));
    const bool busy = load > kMuchLoad * cores;
    out.push_back({.check = "load",
                   .verdict = busy ? Verdict::kWarning : Verdict::kOk,
                   .evidence = fmt::format("{:.1f} in the last minute on {:.0f} cores{}", load, cores,
                                           busy ? ": others work here, and measurements will show it" : ""),
                   .remedy = busy ? "see who (top), and measure when they are done" : ""});
  }
}

void check_clock(const HostFacts& host, Findings& out) {
  const topology::SystemFacts& system = host.system;
  if (system.governor.empty()) return;
  // With these drivers the processor itself chooses the clock, and "powersave" is the usual.
  const bool own = system.frequency_driver.starts_with("intel_pstate") || system.frequency_driver == "amd-pstate-epp";
  const bool slow = (system.governor == "powersave" && !own) || system.governor == "conservative";
  out.push_back({.check = "CPU clock",
                 .verdict = slow ? Verdict::kWarning : Verdict::kOk,
                 .evidence = fmt::format("governor {}{}{}", system.governor,
                                         system.frequency_driver.empty() ? "" : " of " + system.frequency_driver,
                                         slow ? ": low clocks, and slow to rise" : ""),
                 .remedy = slow ? "as root: cpupower frequency-set -g performance" : ""});
}

void check_huge_pages(const HostFacts& host, Findings& out) {
  if (host.system.transparent_hugepages != "never") return;
  out.push_back({.check = "huge pages",
                 .verdict = Verdict::kWarning,
                 .evidence = "transparent huge pages are off: weights of the cpu backend are read through many more "
                             "page tables",
                 .remedy = "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"});
}

void check_machine(const HostFacts& host, Findings& out) {
  const topology::SystemFacts& system = host.system;
  const std::string machine = system.machine.empty() ? "" : system.machine + ", ";
  const std::string kind = !system.virtual_machine   ? "virtual or not is unknown"
                           : *system.virtual_machine ? "a virtual machine"
                                                     : "no virtual machine";
  const std::string container = system.container.empty() ? "no container seen" : "in a container: " + system.container;
  const bool distances = system.virtual_machine == true && host.gpus.topology.gpus.size() > 1;
  out.push_back({.check = "machine",
                 .verdict = distances ? Verdict::kWarning : Verdict::kOk,
                 .evidence = fmt::format("{}{}, {}{}", machine, kind, container,
                                         distances ? "; distances between GPUs are what the hypervisor shows" : ""),
                 .remedy = distances ? "believe measured figures (shardscope comm), not the topology" : ""});
}

}  // namespace

Findings host_findings(const HostFacts& host, Ranks ranks) {
  Findings out;
  check_machine(host, out);
  check_cores(host, ranks, out);
  check_quota(host, out);
  check_memory(host, ranks, out);
  check_shared_memory(host, ranks, out);
  check_locked_memory(host, ranks, out);
  check_swap(host, out);
  check_huge_pages(host, out);
  check_numa_balancing(host, out);
  check_clock(host, out);
  check_neighbours(host, out);
  return out;
}

}  // namespace shardscope::launch
