// The stand-in for NVML as a library: how it is found, what it refuses, and how a table makes it fail.
#include <dlfcn.h>
#include <nvml.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/emulation/fakes/machine_table.hpp"
#include "tests/emulation/fakes/machine_words.hpp"
#include "tests/emulation/fakes/nvml/use.hpp"
#include "tests/emulation/nvml_stand.hpp"

// Several that products of today still call are marked as deprecated.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace shardscope::test {
namespace {

using namespace emulation;

/// Each function that takes a handle, called with this one and with the rest of its arguments right.
std::vector<std::pair<std::string, nvmlReturn_t>> with_handle(nvmlDevice_t device, nvmlDevice_t good) {
  unsigned u = 0;
  unsigned v = 0;
  int i = 0;
  int j = 0;
  unsigned long mask = 0;
  unsigned long long reasons = 0;
  std::array<char, 96> buffer{};
  nvmlPciInfo_t pci{};
  nvmlMemory_t memory{};
  nvmlMemory_v2_t memory_v2{.version = nvmlMemory_v2};
  nvmlEnableState_t active{};
  nvmlIntNvLinkDeviceType_t type{};
  nvmlGpuTopologyLevel_t path{};
  nvmlGpuP2PStatus_t status{};
  nvmlGpuFabricInfo_t fabric{};
  nvmlGpuFabricInfoV_t fabric_v{.version = nvmlGpuFabricInfo_v3};
  nvmlFieldValue_t field{.fieldId = NVML_FI_DEV_NVLINK_LINK_COUNT};
  return {
      {"nvmlDeviceGetIndex", nvmlDeviceGetIndex(device, &u)},
      {"nvmlDeviceGetName", nvmlDeviceGetName(device, buffer.data(), buffer.size())},
      {"nvmlDeviceGetUUID", nvmlDeviceGetUUID(device, buffer.data(), buffer.size())},
      {"nvmlDeviceGetPciInfo_v3", nvmlDeviceGetPciInfo_v3(device, &pci)},
      {"nvmlDeviceGetMemoryInfo", nvmlDeviceGetMemoryInfo(device, &memory)},
      {"nvmlDeviceGetMemoryInfo_v2", nvmlDeviceGetMemoryInfo_v2(device, &memory_v2)},
      {"nvmlDeviceGetMemoryBusWidth", nvmlDeviceGetMemoryBusWidth(device, &u)},
      {"nvmlDeviceGetMemoryAffinity", nvmlDeviceGetMemoryAffinity(device, 1, &mask, NVML_AFFINITY_SCOPE_NODE)},
      {"nvmlDeviceGetCpuAffinityWithinScope",
       nvmlDeviceGetCpuAffinityWithinScope(device, 1, &mask, NVML_AFFINITY_SCOPE_SOCKET)},
      {"nvmlDeviceGetClockInfo", nvmlDeviceGetClockInfo(device, NVML_CLOCK_SM, &u)},
      {"nvmlDeviceGetMaxClockInfo", nvmlDeviceGetMaxClockInfo(device, NVML_CLOCK_SM, &u)},
      {"nvmlDeviceGetCurrPcieLinkGeneration", nvmlDeviceGetCurrPcieLinkGeneration(device, &u)},
      {"nvmlDeviceGetCurrPcieLinkWidth", nvmlDeviceGetCurrPcieLinkWidth(device, &u)},
      {"nvmlDeviceGetMaxPcieLinkGeneration", nvmlDeviceGetMaxPcieLinkGeneration(device, &u)},
      {"nvmlDeviceGetMaxPcieLinkWidth", nvmlDeviceGetMaxPcieLinkWidth(device, &u)},
      {"nvmlDeviceGetNvLinkState", nvmlDeviceGetNvLinkState(device, 0, &active)},
      {"nvmlDeviceGetNvLinkVersion", nvmlDeviceGetNvLinkVersion(device, 0, &u)},
      {"nvmlDeviceGetNvLinkRemotePciInfo_v2", nvmlDeviceGetNvLinkRemotePciInfo_v2(device, 0, &pci)},
      {"nvmlDeviceGetNvLinkRemoteDeviceType", nvmlDeviceGetNvLinkRemoteDeviceType(device, 0, &type)},
      {"nvmlDeviceGetNvLinkCapability", nvmlDeviceGetNvLinkCapability(device, 0, NVML_NVLINK_CAP_VALID, &u)},
      {"nvmlDeviceGetTopologyCommonAncestor", nvmlDeviceGetTopologyCommonAncestor(device, good, &path)},
      {"nvmlDeviceGetTopologyCommonAncestor", nvmlDeviceGetTopologyCommonAncestor(good, device, &path)},
      {"nvmlDeviceGetP2PStatus", nvmlDeviceGetP2PStatus(device, good, NVML_P2P_CAPS_INDEX_READ, &status)},
      {"nvmlDeviceGetP2PStatus", nvmlDeviceGetP2PStatus(good, device, NVML_P2P_CAPS_INDEX_READ, &status)},
      {"nvmlDeviceGetGpuFabricInfo", nvmlDeviceGetGpuFabricInfo(device, &fabric)},
      {"nvmlDeviceGetGpuFabricInfoV", nvmlDeviceGetGpuFabricInfoV(device, &fabric_v)},
      {"nvmlDeviceGetNumaNodeId", nvmlDeviceGetNumaNodeId(device, &u)},
      {"nvmlDeviceGetMigMode", nvmlDeviceGetMigMode(device, &u, &v)},
      {"nvmlDeviceGetCurrentClocksEventReasons", nvmlDeviceGetCurrentClocksEventReasons(device, &reasons)},
      {"nvmlDeviceGetCurrentClocksThrottleReasons", nvmlDeviceGetCurrentClocksThrottleReasons(device, &reasons)},
      {"nvmlDeviceGetTemperature", nvmlDeviceGetTemperature(device, NVML_TEMPERATURE_GPU, &u)},
      {"nvmlDeviceGetPowerUsage", nvmlDeviceGetPowerUsage(device, &u)},
      {"nvmlDeviceGetEnforcedPowerLimit", nvmlDeviceGetEnforcedPowerLimit(device, &u)},
      {"nvmlDeviceGetPersistenceMode", nvmlDeviceGetPersistenceMode(device, &active)},
      {"nvmlDeviceGetCudaComputeCapability", nvmlDeviceGetCudaComputeCapability(device, &i, &j)},
      {"nvmlDeviceGetFieldValues", nvmlDeviceGetFieldValues(device, 1, &field)},
      {"nvmlDeviceGetComputeRunningProcesses_v3", nvmlDeviceGetComputeRunningProcesses_v3(device, &(u = 0), nullptr)},
  };
}

/// Each function without a handle.
std::vector<std::pair<std::string, nvmlReturn_t>> without_handle(const MachineTable& table) {
  unsigned u = 0;
  int i = 0;
  std::array<char, 80> buffer{};
  nvmlDevice_t device = nullptr;
  const Gpu& gpu = table.gpus[0];
  return {
      {"nvmlSystemGetDriverVersion", nvmlSystemGetDriverVersion(buffer.data(), buffer.size())},
      {"nvmlSystemGetCudaDriverVersion_v2", nvmlSystemGetCudaDriverVersion_v2(&i)},
      {"nvmlDeviceGetCount_v2", nvmlDeviceGetCount_v2(&u)},
      {"nvmlDeviceGetHandleByIndex_v2", nvmlDeviceGetHandleByIndex_v2(0, &device)},
      {"nvmlDeviceGetHandleByUUID", nvmlDeviceGetHandleByUUID(gpu.uuid.c_str(), &device)},
      {"nvmlDeviceGetHandleByPciBusId_v2", nvmlDeviceGetHandleByPciBusId_v2(gpu.pci_bus_id.c_str(), &device)},
  };
}

}  // namespace

TEST_CASE("fake NVML: whoever opens libnvidia-ml.so.1 by name gets it") {
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  const auto init = reinterpret_cast<nvmlReturn_t (*)()>(dlsym(library, "nvmlInit_v2"));
  CHECK(init == &nvmlInit_v2);
  for (const std::string_view name : kNvmlFunctions) {
    INFO(name);
    CHECK(dlsym(library, std::string(name).c_str()) != nullptr);
  }
  CHECK(dlsym(library, "nvmlShutdown") != nullptr);
  CHECK(dlsym(library, "nvmlErrorString") != nullptr);
  CHECK(dlsym(library, "nvmlDeviceSetMigMode") == nullptr);  // not among what we need
  dlclose(library);
}

TEST_CASE("fake NVML: before nvmlInit nothing works, it is counted, and ends with the last nvmlShutdown") {
  const MachineTable table = make_table("h100", 2);
  for (const auto& [function, result] : without_handle(table)) {
    INFO(function);
    CHECK(result == NVML_ERROR_UNINITIALIZED);
  }
  for (const auto& [function, result] : with_handle(nullptr, nullptr)) {
    INFO(function);
    CHECK(result == NVML_ERROR_UNINITIALIZED);
  }
  CHECK(nvmlShutdown() == NVML_ERROR_UNINITIALIZED);
  CHECK(std::string(nvmlErrorString(NVML_ERROR_NOT_SUPPORTED)) != nvmlErrorString(NVML_ERROR_UNINITIALIZED));

  unsigned count = 0;
  const Nvml nvml(table);
  CHECK(nvmlInit_v2() == NVML_SUCCESS);
  CHECK(nvmlShutdown() == NVML_SUCCESS);
  CHECK(nvmlDeviceGetCount_v2(&count) == NVML_SUCCESS);
  CHECK(count == 2);
}

TEST_CASE("fake NVML: every function works with right arguments, and is refused a handle that is none or of before") {
  MachineTable table = make_table("h100", 2);
  table.gpus[0].cpu_affinity = "0-3";
  std::vector<nvmlDevice_t> bad = {nullptr};
  {
    const Nvml nvml(table);
    bad.push_back(nvml[0]);
    bad.push_back(nvml[1]);
  }
  const Nvml nvml(table);
  for (const auto& [function, result] : without_handle(table)) {
    INFO(function);
    CHECK(result == NVML_SUCCESS);
  }
  for (const auto& [function, result] : with_handle(nvml[0], nvml[1])) {
    INFO(function);
    CHECK(result == (function == "nvmlDeviceGetNumaNodeId" ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS));
  }
  int other = 0;
  bad.push_back(reinterpret_cast<nvmlDevice_t>(&other));
  for (const nvmlDevice_t device : bad) {
    for (const auto& [function, result] : with_handle(device, nvml[1])) {
      INFO(function);
      CHECK(result == NVML_ERROR_INVALID_ARGUMENT);
    }
  }
}

TEST_CASE("fake NVML: a null pointer for an answer is an invalid argument") {
  const Nvml nvml(make_table("h100", 2));
  const nvmlDevice_t gpu = nvml[0];
  unsigned u = 0;
  int i = 0;
  nvmlDevice_t device = nullptr;
  const std::string uuid = text(nvmlDeviceGetUUID, gpu);
  const std::pair<const char*, nvmlReturn_t> results[] = {
      {"driver", nvmlSystemGetDriverVersion(nullptr, 80)},
      {"cuda driver", nvmlSystemGetCudaDriverVersion_v2(nullptr)},
      {"count", nvmlDeviceGetCount_v2(nullptr)},
      {"by index", nvmlDeviceGetHandleByIndex_v2(0, nullptr)},
      {"by uuid", nvmlDeviceGetHandleByUUID(uuid.c_str(), nullptr)},
      {"by no uuid", nvmlDeviceGetHandleByUUID(nullptr, &device)},
      {"by bus", nvmlDeviceGetHandleByPciBusId_v2("1B:00.0", nullptr)},
      {"by no bus", nvmlDeviceGetHandleByPciBusId_v2(nullptr, &device)},
      {"index", nvmlDeviceGetIndex(gpu, nullptr)},
      {"name", nvmlDeviceGetName(gpu, nullptr, 96)},
      {"uuid", nvmlDeviceGetUUID(gpu, nullptr, 96)},
      {"pci", nvmlDeviceGetPciInfo_v3(gpu, nullptr)},
      {"memory", nvmlDeviceGetMemoryInfo(gpu, nullptr)},
      {"memory 2", nvmlDeviceGetMemoryInfo_v2(gpu, nullptr)},
      {"bus width", nvmlDeviceGetMemoryBusWidth(gpu, nullptr)},
      {"affinity", nvmlDeviceGetMemoryAffinity(gpu, 1, nullptr, NVML_AFFINITY_SCOPE_NODE)},
      {"affinity of CPUs", nvmlDeviceGetCpuAffinityWithinScope(gpu, 1, nullptr, NVML_AFFINITY_SCOPE_NODE)},
      {"clock", nvmlDeviceGetClockInfo(gpu, NVML_CLOCK_MEM, nullptr)},
      {"max clock", nvmlDeviceGetMaxClockInfo(gpu, NVML_CLOCK_VIDEO, nullptr)},
      {"generation", nvmlDeviceGetCurrPcieLinkGeneration(gpu, nullptr)},
      {"width", nvmlDeviceGetCurrPcieLinkWidth(gpu, nullptr)},
      {"max generation", nvmlDeviceGetMaxPcieLinkGeneration(gpu, nullptr)},
      {"max width", nvmlDeviceGetMaxPcieLinkWidth(gpu, nullptr)},
      {"state", nvmlDeviceGetNvLinkState(gpu, 0, nullptr)},
      {"version", nvmlDeviceGetNvLinkVersion(gpu, 0, nullptr)},
      {"remote pci", nvmlDeviceGetNvLinkRemotePciInfo_v2(gpu, 0, nullptr)},
      {"remote type", nvmlDeviceGetNvLinkRemoteDeviceType(gpu, 0, nullptr)},
      {"capability", nvmlDeviceGetNvLinkCapability(gpu, 0, NVML_NVLINK_CAP_VALID, nullptr)},
      {"ancestor", nvmlDeviceGetTopologyCommonAncestor(gpu, nvml[1], nullptr)},
      {"peer", nvmlDeviceGetP2PStatus(gpu, nvml[1], NVML_P2P_CAPS_INDEX_READ, nullptr)},
      {"fabric", nvmlDeviceGetGpuFabricInfo(gpu, nullptr)},
      {"fabric v", nvmlDeviceGetGpuFabricInfoV(gpu, nullptr)},
      {"numa", nvmlDeviceGetNumaNodeId(gpu, nullptr)},
      {"mig", nvmlDeviceGetMigMode(gpu, &u, nullptr)},
      {"mig 2", nvmlDeviceGetMigMode(gpu, nullptr, &u)},
      {"reasons", nvmlDeviceGetCurrentClocksEventReasons(gpu, nullptr)},
      {"reasons of before", nvmlDeviceGetCurrentClocksThrottleReasons(gpu, nullptr)},
      {"temperature", nvmlDeviceGetTemperature(gpu, NVML_TEMPERATURE_GPU, nullptr)},
      {"power", nvmlDeviceGetPowerUsage(gpu, nullptr)},
      {"power limit", nvmlDeviceGetEnforcedPowerLimit(gpu, nullptr)},
      {"persistence", nvmlDeviceGetPersistenceMode(gpu, nullptr)},
      {"compute", nvmlDeviceGetCudaComputeCapability(gpu, &i, nullptr)},
      {"compute 2", nvmlDeviceGetCudaComputeCapability(gpu, nullptr, &i)},
      {"fields", nvmlDeviceGetFieldValues(gpu, 1, nullptr)},
      {"processes", nvmlDeviceGetComputeRunningProcesses_v3(gpu, nullptr, nullptr)},
      {"processes 2", nvmlDeviceGetComputeRunningProcesses_v3(gpu, &(u = 3), nullptr)},
  };
  for (const auto& [what, result] : results) {
    INFO(what);
    CHECK(result == NVML_ERROR_INVALID_ARGUMENT);
  }
}

TEST_CASE("fake NVML: buffers that are too small are refused, and nothing is written past their end") {
  const Nvml nvml(make_table("h200", 1));
  std::array<char, 16> buffer;
  buffer.fill('#');
  const std::string name = "NVIDIA H200";
  const auto length = static_cast<unsigned>(name.size());
  CHECK(nvmlDeviceGetName(nvml[0], buffer.data(), length) == NVML_ERROR_INSUFFICIENT_SIZE);
  CHECK(nvmlDeviceGetName(nvml[0], buffer.data(), 0) == NVML_ERROR_INSUFFICIENT_SIZE);
  CHECK(buffer[0] == '#');
  CHECK(nvmlDeviceGetName(nvml[0], buffer.data(), length + 1) == NVML_SUCCESS);
  CHECK(buffer.data() == name);
  CHECK(buffer[length + 1] == '#');
  CHECK(nvmlDeviceGetUUID(nvml[0], buffer.data(), 16) == NVML_ERROR_INSUFFICIENT_SIZE);
  CHECK(nvmlSystemGetDriverVersion(buffer.data(), 4) == NVML_ERROR_INSUFFICIENT_SIZE);
}

TEST_CASE("fake NVML: a table can make each function fail, with each error") {
  std::vector<std::string> functions;
  {
    const MachineTable table = make_table("h100", 2);
    const Nvml nvml(table);
    for (const auto& call : without_handle(table)) functions.push_back(call.first);
    for (const auto& call : with_handle(nvml[0], nvml[1])) functions.push_back(call.first);
  }
  std::set<std::string> failable(functions.begin(), functions.end());
  failable.insert("nvmlInit_v2");
  CHECK(failable.size() == std::size(kNvmlFunctions));
  for (const std::string_view function : kNvmlFunctions) {
    INFO(function);
    CHECK(failable.contains(std::string(function)));
    MachineTable table = make_table("h100", 2);
    table.failing[std::string(function)] = "GPU_IS_LOST";
    shardscope_fake_nvml_use(&table);
    const nvmlReturn_t init = nvmlInit_v2();
    CHECK(init == (function == "nvmlInit_v2" ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS));
    if (init != NVML_SUCCESS) continue;
    std::vector<std::pair<std::string, nvmlReturn_t>> results = without_handle(table);
    nvmlDevice_t devices[2] = {};
    const bool by_index = function == "nvmlDeviceGetHandleByIndex_v2";
    for (unsigned i = 0; i < 2; ++i) {
      const nvmlReturn_t found = by_index ? nvmlDeviceGetHandleByUUID(table.gpus[i].uuid.c_str(), &devices[i])
                                          : nvmlDeviceGetHandleByIndex_v2(i, &devices[i]);
      REQUIRE(found == NVML_SUCCESS);
    }
    const auto rest = with_handle(devices[0], devices[1]);
    results.insert(results.end(), rest.begin(), rest.end());
    for (const auto& [name, result] : results) {
      INFO(name);
      CHECK((result == NVML_ERROR_GPU_IS_LOST) == (name == function));
    }
    CHECK(nvmlShutdown() == NVML_SUCCESS);
  }
  for (const Word<int>& word : kNvmlErrorWords) {
    MachineTable table = make_table("h100", 1);
    table.failing["nvmlDeviceGetCount_v2"] = word.text;
    const Nvml nvml(table);
    unsigned count = 0;
    CHECK(nvmlDeviceGetCount_v2(&count) == static_cast<nvmlReturn_t>(word.value));
  }
  shardscope_fake_nvml_use(nullptr);
}

TEST_CASE("fake NVML: a table can make each function fail for one GPU alone") {
  for (const std::string_view function : kNvmlFunctions) {
    if (!function.starts_with("nvmlDevice") || function == "nvmlDeviceGetCount_v2") continue;
    INFO(function);
    MachineTable table = make_table("h100", 2);
    table.gpus[0].cpu_affinity = table.gpus[1].cpu_affinity = "0-3";
    table.gpus[1].failing[std::string(function)] = "GPU_IS_LOST";
    shardscope_fake_nvml_use(&table);
    REQUIRE(nvmlInit_v2() == NVML_SUCCESS);
    nvmlDevice_t devices[2] = {};
    const bool by_index = function == "nvmlDeviceGetHandleByIndex_v2";
    CHECK(nvmlDeviceGetHandleByIndex_v2(0, &devices[0]) == NVML_SUCCESS);
    CHECK(nvmlDeviceGetHandleByIndex_v2(1, &devices[1]) == (by_index ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS));
    const bool by_uuid = function == "nvmlDeviceGetHandleByUUID";
    CHECK(nvmlDeviceGetHandleByUUID(table.gpus[1].uuid.c_str(), &devices[1]) ==
          (by_uuid ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS));
    for (const auto& [name, result] : with_handle(devices[0], devices[0])) {
      INFO(name);
      CHECK(result != NVML_ERROR_GPU_IS_LOST);
    }
    bool lost = by_index || by_uuid || function == "nvmlDeviceGetHandleByPciBusId_v2";
    for (const auto& [name, result] : with_handle(devices[1], devices[0])) {
      if (name != function) CHECK(result != NVML_ERROR_GPU_IS_LOST);
      lost = lost || (name == function && result == NVML_ERROR_GPU_IS_LOST);
    }
    CHECK(lost);
    CHECK(nvmlShutdown() == NVML_SUCCESS);
  }
  shardscope_fake_nvml_use(nullptr);
}

TEST_CASE("fake NVML: a process that no test speaks to has the machine of its environment") {
  setenv("SHARDSCOPE_EMULATION", "devices=3,model=h200", 1);
  REQUIRE(nvmlInit_v2() == NVML_SUCCESS);
  unsigned count = 0;
  nvmlDevice_t device = nullptr;
  CHECK(nvmlDeviceGetCount_v2(&count) == NVML_SUCCESS);
  CHECK(count == 3);
  CHECK(nvmlDeviceGetHandleByIndex_v2(2, &device) == NVML_SUCCESS);
  CHECK(text(nvmlDeviceGetUUID, device) == make_table("h200", 3).gpus[2].uuid);
  CHECK(nvmlShutdown() == NVML_SUCCESS);
  setenv("SHARDSCOPE_EMULATION", "devices=nine", 1);
  CHECK(nvmlInit_v2() == NVML_ERROR_UNKNOWN);  // and says why on standard error
  unsetenv("SHARDSCOPE_EMULATION");
}

}  // namespace shardscope::test
