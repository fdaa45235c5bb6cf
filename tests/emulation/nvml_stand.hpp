// For tests of the stand-in for NVML: the library with a machine, and answers as numbers.
#pragma once

#include <nvml.h>

#include <array>
#include <string>

#include <catch2/catch.hpp>

#include "tests/emulation/fakes/machine_table.hpp"
#include "tests/emulation/fakes/nvml/use.hpp"

namespace shardscope::test {

inline const std::string kTables = SHARDSCOPE_TEST_DATA "/emulation/";

/// The library with a machine, initialised; shut down at the end.
class Nvml {
 public:
  explicit Nvml(const emulation::MachineTable& table) {
    shardscope_fake_nvml_use(&table);
    REQUIRE(nvmlInit_v2() == NVML_SUCCESS);
  }
  explicit Nvml(const std::string& name) : Nvml(emulation::read_table(kTables + name)) {}
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() {
    nvmlShutdown();
    shardscope_fake_nvml_use(nullptr);
  }

  nvmlDevice_t operator[](unsigned index) const {
    nvmlDevice_t device = nullptr;
    REQUIRE(nvmlDeviceGetHandleByIndex_v2(index, &device) == NVML_SUCCESS);
    return device;
  }
};

/// How the answers below say that a function failed.
constexpr long long failed(nvmlReturn_t error) {
  return -1 - static_cast<long long>(error);
}
inline long long number(nvmlReturn_t (*function)(nvmlDevice_t, unsigned*), nvmlDevice_t device) {
  unsigned value = 0;
  const nvmlReturn_t result = function(device, &value);
  return result == NVML_SUCCESS ? value : failed(result);
}

inline std::string text(nvmlReturn_t (*function)(nvmlDevice_t, char*, unsigned), nvmlDevice_t device) {
  std::array<char, 96> buffer{};
  REQUIRE(function(device, buffer.data(), buffer.size()) == NVML_SUCCESS);
  return buffer.data();
}

inline long long clock(nvmlReturn_t (*function)(nvmlDevice_t, nvmlClockType_t, unsigned*), nvmlDevice_t device,
                       nvmlClockType_t type) {
  unsigned value = 0;
  const nvmlReturn_t result = function(device, type, &value);
  return result == NVML_SUCCESS ? value : failed(result);
}
inline long long state(nvmlDevice_t device, unsigned link) {
  nvmlEnableState_t active{};
  const nvmlReturn_t result = nvmlDeviceGetNvLinkState(device, link, &active);
  return result == NVML_SUCCESS ? static_cast<long long>(active) : failed(result);
}
inline long long peer(nvmlDevice_t who, nvmlDevice_t whose,
                      nvmlGpuP2PCapsIndex_t capability = NVML_P2P_CAPS_INDEX_WRITE) {
  nvmlGpuP2PStatus_t status{};
  const nvmlReturn_t result = nvmlDeviceGetP2PStatus(who, whose, capability, &status);
  return result == NVML_SUCCESS ? static_cast<long long>(status) : failed(result);
}
inline long long level(nvmlDevice_t a, nvmlDevice_t b) {
  nvmlGpuTopologyLevel_t path{};
  const nvmlReturn_t result = nvmlDeviceGetTopologyCommonAncestor(a, b, &path);
  return result == NVML_SUCCESS ? static_cast<long long>(path) : failed(result);
}

}  // namespace shardscope::test
