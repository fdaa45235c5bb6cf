// The checks of `doctor`: pure functions from facts to findings. None throws for what is missing: its verdict is
// `unknown` then, and the evidence says why. A check that does not apply has no finding.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launch/doctor_facts.hpp"
#include "launch/run_options.hpp"
#include "runtime/report/doctor_report.hpp"

namespace shardscope::launch {

using runtime::Finding;
using runtime::Verdict;
using Findings = std::vector<Finding>;
using Ranks = std::span<const RankFacts>;

// ---- words (doctor_words.cpp) ---------------------------------------------------------------------------------------

/// "rank 3", "ranks 0-2,5".
std::string ranks_text(const std::vector<int>& ranks);
/// What each rank answers; ranks with one answer together: "1 device (ranks 0-2), 2 devices (rank 3)". Only the answer
/// where all have it. Those with an empty answer are left out.
std::string grouped(Ranks ranks, const std::function<std::string(const RankFacts&)>& answer);
/// "64 KiB", "23.7 GiB".
std::string memory_text(int64_t bytes);
/// "1 core", "2 cores".
std::string count_text(int64_t count, const std::string& thing);
/// The first value of a variable among the ranks; empty: none has it.
std::string variable_of(Ranks ranks, const std::string& name);
/// Findings of several hosts: what all of `hosts` say alike stands once, all else begins with its host.
Findings merged(const std::vector<std::string>& hosts, const std::vector<Findings>& of_hosts);

// ---- the launch, of all ranks (doctor_launch_checks.cpp) ------------------------------------------------------------

struct LaunchFacts {
  std::string launcher;                // "mpirun", "srun", "none"
  std::optional<int> announced_ranks;  // by the launcher
  int gpus = 0;                        // of rank 0's host
};
Findings launch_findings(const LaunchFacts& launch, Ranks ranks);

// ---- a host and its ranks (doctor_host_checks.cpp, doctor_mpi_checks.cpp) -------------------------------------------

Findings host_findings(const HostFacts& host, Ranks ranks);
/// mpi: version of the library; empty: started without.
Findings mpi_findings(const HostFacts& host, Ranks ranks, const std::string& mpi);

// ---- a host's GPUs and its ranks ------------------------------------------------------------------------------------

/// Driver, libraries, what each rank sees (doctor_gpu_checks.cpp). ranks: of that host.
Findings gpu_findings(const HostFacts& host, Ranks ranks, BackendKind backend);
/// Clocks, power, PCIe, other processes, NVLink and its fabric, the topology's warnings (doctor_health_checks.cpp).
Findings health_findings(const topology::Topology& topology);
/// NCCL's and CUDA's variables and files (doctor_variable_checks.cpp).
Findings variable_findings(const HostFacts& host, Ranks ranks);

/// Of the ranks of the whole run, whose devices were chosen.
struct DeviceUse {
  bool tried = false;   // with devices
  std::string why_not;  // ranks cannot each have one: why; empty: they can
  struct OfRank {
    std::string pci_bus_id;  // lower case
    std::string error;       // it could not be taken: why
  };
  std::vector<OfRank> ranks;  // empty unless chosen
};
/// Whether each rank gets a device of its own. Those of `host`, rank 0's, are named as its driver numbers them.
Findings device_findings(const DeviceUse& use, Ranks ranks, const HostFacts& host);
/// Whether the ranks of `host` run near the devices that were chosen for them. ranks: at least those.
Findings near_findings(const DeviceUse& use, Ranks ranks, const HostFacts& host);

// ---- between GPUs (doctor_peer_checks.cpp) --------------------------------------------------------------------------

/// What writing and reading back between the ranks' devices has shown.
struct PeerProof {
  bool tried = false;
  std::string why_not_tried;  // "2 ranks are needed"
  std::string failure;        // empty: everything arrived
  int ranks = 0;
  bool nccl_tried = false;
  std::string nccl_failure;  // empty: its sums are right
  std::string nccl_version;  // empty: unknown
};
Findings peer_findings(const PeerProof& proof, const HostFacts& host);

}  // namespace shardscope::launch
