// What one kernel loads and stores, as the checked emulation counts it.
#pragma once

#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <string_view>

#include "tests/emulation/emulation.hpp"
#include "tests/kernels/cuda/device_array.hpp"

namespace shardscope::test {

/// What the kernel whose name contains `name` did in one run of `body` on a fresh machine that counts requests.
inline emulation::KernelCounters counters_of(std::string_view name, const std::function<void()>& body,
                                             int devices = 1) {
  emulation::restart({.devices = devices, .count_requests = true});
  body();
  check_cuda(cudaDeviceSynchronize(), "the kernel");
  for (const emulation::KernelCounters& counters : emulation::counters()) {
    if (counters.kernel.find(name) != std::string::npos) return counters;
  }
  FAIL("no counters of " << name);
  return {};
}

/// Bytes of a class of allocations (emulation::label).
inline emulation::Traffic traffic_of(const emulation::KernelCounters& counters, const std::string& allocation_class) {
  const auto found = counters.bytes.find(allocation_class);
  return found == counters.bytes.end() ? emulation::Traffic{} : found->second;
}
inline int64_t loaded(const emulation::KernelCounters& counters, const std::string& allocation_class) {
  return traffic_of(counters, allocation_class).loaded_bytes;
}

/// Sectors, or passes over the banks, per least possible number.
inline double per_ideal(const emulation::Requests& requests) {
  return static_cast<double>(requests.units) / static_cast<double>(requests.ideal_units);
}

}  // namespace shardscope::test
