// Planted bugs of programs of two processes, which share device memory: rank 0 exports, rank 1 imports. Each process
// runs the scenario on a machine of its own, rank r on device r.
#pragma once

#include <cuda_runtime.h>

#include <optional>
#include <string_view>
#include <vector>

#include "tests/emulation/emulation.hpp"
#include "tests/emulation/planted_host/host_stand.hpp"
#include "tests/emulation/planted_host/planted_host.hpp"
#include "tests/emulation/processes.hpp"

namespace shardscope::planted_host {

struct ProcessBug {
  std::string_view name;
  /// True if all is as it should be in this rank.
  bool (*scenario)(HostStand&, const test::Rank&);
  int who = 1;  // the rank that sees the bug; the other one's run is as without it
  cudaError_t error = cudaSuccess;
  std::string_view refusal = {};
  std::optional<emulation::Fault> fault = std::nullopt;
  std::string_view message = {};
  Plain plain = Plain::kReport;
  /// A report that the other rank gets then, and what the runtime gives it.
  std::optional<emulation::Fault> other_fault = std::nullopt;
  void (*prepare)(emulation::Options&, bool planted) = nullptr;
};

std::vector<ProcessBug> ipc_bugs();

}  // namespace shardscope::planted_host
