// Host programs with a bug that can be switched off: how the stand-ins must show it, and that the sound twin passes. A
// bug is a scenario that asks `planted()`, and a row in the table at the end of its file. Seen means: an error code at
// the call, with the reason; a report; a wrong result in some orders.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tests/emulation/emulation.hpp"
#include "tests/emulation/planted_host/host_stand.hpp"

namespace shardscope::planted_host {

/// What the program without hooks in its kernels must show of a bug that the checked one reports.
enum class Plain : uint8_t {
  kReport,       // the same
  kWrongResult,  // a wrong result in at least one of the orders tried
  kNothing,      // perhaps nothing: the result may well be right
  kNotRun,       // the access ends the program itself
};

struct HostBug {
  std::string_view name;
  /// True if all is as it should be: the result, and, if the bug is a refused call, what follows from it.
  bool (*scenario)(HostStand&);
  /// The first error that the runtime gives. After a report: the fault's, wherever it first shows.
  cudaError_t error = cudaSuccess;
  /// Part of why the call was refused.
  std::string_view refusal = {};
  /// What is reported, and a part of the message.
  std::optional<emulation::Fault> fault = std::nullopt;
  std::string_view message = {};
  /// With a fault only. Without one and without an error: the result is wrong, in both programs.
  Plain plain = Plain::kReport;
  int devices = 1;
  std::string_view model = "h100";
  /// Changes the machine for the planted run (true), or for the sound one.
  void (*prepare)(emulation::Options&, bool planted) = nullptr;
};

std::vector<HostBug> order_bugs();
std::vector<HostBug> product_bugs();
std::vector<HostBug> memory_bugs();
std::vector<HostBug> launch_bugs();
std::vector<HostBug> capture_bugs();
std::vector<HostBug> peer_bugs();

}  // namespace shardscope::planted_host
