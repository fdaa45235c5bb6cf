// What the stand-in for NVML tells of a machine, against its documentation (nvml.h) and the machine's table.
#include <nvml.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/emulation/fakes/machine_table.hpp"
#include "tests/emulation/fakes/machine_words.hpp"
#include "tests/emulation/nvml_stand.hpp"

// Several that products of today still call are marked as deprecated.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace shardscope::test {

using namespace emulation;

TEST_CASE("fake NVML: identity: names, UUIDs and bus ids lead to the same handle") {
  setenv("CUDA_VISIBLE_DEVICES", "1", 1);  // nothing to NVML
  const MachineTable table = make_table("h100", 8);
  const Nvml nvml(table);
  for (unsigned i = 0; i < 8; ++i) {
    const Gpu& gpu = table.gpus[i];
    CHECK(number(nvmlDeviceGetIndex, nvml[i]) == i);
    CHECK(text(nvmlDeviceGetName, nvml[i]) == "NVIDIA H100 80GB HBM3");
    CHECK(text(nvmlDeviceGetUUID, nvml[i]) == gpu.uuid);
    nvmlDevice_t device = nullptr;
    CHECK(nvmlDeviceGetHandleByUUID(gpu.uuid.c_str(), &device) == NVML_SUCCESS);
    CHECK(device == nvml[i]);
    nvmlPciInfo_t pci{};
    CHECK(nvmlDeviceGetPciInfo_v3(nvml[i], &pci) == NVML_SUCCESS);
    CHECK(pci.busId == gpu.pci_bus_id);
    CHECK(pci.busIdLegacy == gpu.pci_bus_id.substr(4));
    CHECK(pci.domain == 0);
    CHECK(pci.bus == std::stoul(gpu.pci_bus_id.substr(9, 2), nullptr, 16));
    CHECK(pci.device == 0);
    CHECK(pci.pciDeviceId == 0x233010DE);
    device = nullptr;
    CHECK(nvmlDeviceGetHandleByPciBusId_v2(pci.busId, &device) == NVML_SUCCESS);
    CHECK(device == nvml[i]);
  }
  unsetenv("CUDA_VISIBLE_DEVICES");

  nvmlDevice_t device = nullptr;
  for (const char* bus_id : {"00000000:1B:00.0", "0000:1b:00.0", "0:1b:0.0", "0:1B:0", "1b:00.0"}) {
    INFO(bus_id);
    device = nullptr;
    CHECK(nvmlDeviceGetHandleByPciBusId_v2(bus_id, &device) == NVML_SUCCESS);
    CHECK(device == nvml[0]);
  }
  for (const char* bus_id : {"", "1B", "1B:00", "1B:", "0:1B:00.8", "0:1B:20.0", "0:100:00.0", "0:0:1B:00.0",
                             "x:1B:00.0", "00000000:1B:00.0 ", "00000000-1B-00.0"}) {
    INFO(bus_id);
    CHECK(nvmlDeviceGetHandleByPciBusId_v2(bus_id, &device) == NVML_ERROR_INVALID_ARGUMENT);
  }
  CHECK(nvmlDeviceGetHandleByPciBusId_v2("00000000:1C:00.0", &device) == NVML_ERROR_NOT_FOUND);
  CHECK(nvmlDeviceGetHandleByPciBusId_v2("00000001:1B:00.0", &device) == NVML_ERROR_NOT_FOUND);
  CHECK(nvmlDeviceGetHandleByUUID("GPU-0", &device) == NVML_ERROR_NOT_FOUND);
  CHECK(nvmlDeviceGetHandleByIndex_v2(8, &device) == NVML_ERROR_INVALID_ARGUMENT);
}

TEST_CASE("fake NVML: figures of the model and of now") {
  const Nvml nvml("h100-degraded.json");
  const nvmlDevice_t good = nvml[0];
  const nvmlDevice_t hot = nvml[4];
  const nvmlDevice_t slow = nvml[7];
  CHECK(number(nvmlDeviceGetMemoryBusWidth, good) == 5120);
  CHECK(clock(nvmlDeviceGetMaxClockInfo, hot, NVML_CLOCK_SM) == 1980);
  CHECK(clock(nvmlDeviceGetClockInfo, hot, NVML_CLOCK_SM) == 1155);
  CHECK(clock(nvmlDeviceGetClockInfo, hot, NVML_CLOCK_GRAPHICS) == 1155);
  CHECK(clock(nvmlDeviceGetClockInfo, hot, NVML_CLOCK_MEM) == 2619);
  CHECK(clock(nvmlDeviceGetClockInfo, good, NVML_CLOCK_SM) == 1980);
  CHECK(clock(nvmlDeviceGetClockInfo, good, NVML_CLOCK_VIDEO) == failed(NVML_ERROR_NOT_SUPPORTED));
  CHECK(clock(nvmlDeviceGetClockInfo, good, NVML_CLOCK_COUNT) == failed(NVML_ERROR_INVALID_ARGUMENT));
  unsigned long long reasons = 1;
  CHECK(nvmlDeviceGetCurrentClocksEventReasons(good, &reasons) == NVML_SUCCESS);
  CHECK(reasons == nvmlClocksEventReasonNone);
  CHECK(nvmlDeviceGetCurrentClocksEventReasons(hot, &reasons) == NVML_SUCCESS);
  CHECK(reasons == (nvmlClocksThrottleReasonHwSlowdown | nvmlClocksThrottleReasonHwThermalSlowdown));
  unsigned celsius = 0;
  CHECK(nvmlDeviceGetTemperature(hot, NVML_TEMPERATURE_GPU, &celsius) == NVML_SUCCESS);
  CHECK(celsius == 91);
  CHECK(nvmlDeviceGetTemperature(hot, NVML_TEMPERATURE_COUNT, &celsius) == NVML_ERROR_INVALID_ARGUMENT);
  CHECK(number(nvmlDeviceGetPowerUsage, good) == 70'000);
  CHECK(number(nvmlDeviceGetEnforcedPowerLimit, good) == 700'000);
  CHECK(nvmlDeviceGetCurrentClocksThrottleReasons(hot, &reasons) == NVML_SUCCESS);
  CHECK(reasons == (nvmlClocksThrottleReasonHwSlowdown | nvmlClocksThrottleReasonHwThermalSlowdown));
  CHECK(number(nvmlDeviceGetCurrPcieLinkGeneration, slow) == 1);
  CHECK(number(nvmlDeviceGetCurrPcieLinkWidth, slow) == 8);
  CHECK(number(nvmlDeviceGetMaxPcieLinkGeneration, slow) == 5);
  CHECK(number(nvmlDeviceGetMaxPcieLinkWidth, slow) == 16);
  int major = 0;
  int minor = 1;
  CHECK(nvmlDeviceGetCudaComputeCapability(good, &major, &minor) == NVML_SUCCESS);
  CHECK(major == 9);
  CHECK(minor == 0);
  unsigned long nodes[2] = {~0ul, ~0ul};
  CHECK(nvmlDeviceGetMemoryAffinity(slow, 2, nodes, NVML_AFFINITY_SCOPE_SOCKET) == NVML_SUCCESS);
  CHECK(nodes[0] == 2);
  CHECK(nodes[1] == 0);
  CHECK(nvmlDeviceGetMemoryAffinity(slow, 0, nodes, NVML_AFFINITY_SCOPE_NODE) == NVML_ERROR_INVALID_ARGUMENT);
  CHECK(nvmlDeviceGetMemoryAffinity(slow, 1, nodes, 2) == NVML_ERROR_INVALID_ARGUMENT);
}

TEST_CASE("fake NVML: CPUs that are near, and persistence") {
  MachineTable table = make_table("h100", 2);
  table.gpus[0].cpu_affinity = "0-1,63,64,129";
  table.gpus[1].persistence = false;
  const Nvml nvml(table);
  unsigned long cpus[3] = {~0ul, ~0ul, ~0ul};
  CHECK(nvmlDeviceGetCpuAffinityWithinScope(nvml[0], 2, cpus, NVML_AFFINITY_SCOPE_NODE) == NVML_SUCCESS);
  CHECK(cpus[0] == (3ul | 1ul << 63));
  CHECK(cpus[1] == 1);
  CHECK(cpus[2] == ~0ul);  // beyond what the caller gave
  CHECK(nvmlDeviceGetCpuAffinityWithinScope(nvml[0], 0, cpus, NVML_AFFINITY_SCOPE_NODE) == NVML_ERROR_INVALID_ARGUMENT);
  CHECK(nvmlDeviceGetCpuAffinityWithinScope(nvml[0], 1, cpus, 2) == NVML_ERROR_INVALID_ARGUMENT);
  CHECK(nvmlDeviceGetCpuAffinityWithinScope(nvml[1], 1, cpus, NVML_AFFINITY_SCOPE_NODE) == NVML_ERROR_NOT_SUPPORTED);
  nvmlEnableState_t on{};
  CHECK(nvmlDeviceGetPersistenceMode(nvml[0], &on) == NVML_SUCCESS);
  CHECK(on == NVML_FEATURE_ENABLED);
  CHECK(nvmlDeviceGetPersistenceMode(nvml[1], &on) == NVML_SUCCESS);
  CHECK(on == NVML_FEATURE_DISABLED);
}

TEST_CASE("fake NVML: the words for clock reasons are NVML's bits") {
  const std::pair<std::string_view, unsigned long long> bits[] = {
      {"gpu-idle", nvmlClocksEventReasonGpuIdle},
      {"applications-clocks-setting", nvmlClocksEventReasonApplicationsClocksSetting},
      {"sw-power-cap", nvmlClocksEventReasonSwPowerCap},
      {"hw-slowdown", nvmlClocksThrottleReasonHwSlowdown},
      {"sync-boost", nvmlClocksEventReasonSyncBoost},
      {"sw-thermal-slowdown", nvmlClocksEventReasonSwThermalSlowdown},
      {"hw-thermal-slowdown", nvmlClocksThrottleReasonHwThermalSlowdown},
      {"hw-power-brake-slowdown", nvmlClocksThrottleReasonHwPowerBrakeSlowdown},
      {"display-clock-setting", nvmlClocksEventReasonDisplayClockSetting}};
  REQUIRE(std::size(bits) == std::size(kClockReasonWords));
  for (size_t i = 0; i < std::size(bits); ++i) {
    CHECK(kClockReasonWords[i].text == bits[i].first);
    CHECK(kClockReasonWords[i].value == bits[i].second);
  }
}

TEST_CASE("fake NVML: memory adds up, and the second version tells what is reserved") {
  const Nvml nvml("h100-degraded.json");
  nvmlMemory_t memory{};
  nvmlMemory_v2_t parts{.version = nvmlMemory_v2};
  CHECK(nvmlDeviceGetMemoryInfo(nvml[6], &memory) == NVML_SUCCESS);
  CHECK(nvmlDeviceGetMemoryInfo_v2(nvml[6], &parts) == NVML_SUCCESS);
  CHECK(memory.total == 81'559ull << 20);
  CHECK(memory.free + memory.used == memory.total);
  CHECK(parts.total == memory.total);
  CHECK(parts.free == memory.free);
  CHECK(parts.used == 20'480ull << 20);
  CHECK(parts.used + parts.reserved == memory.used);
  CHECK(parts.reserved == parts.total - 85'029'158'912ull);
  CHECK(nvmlDeviceGetMemoryInfo(nvml[0], &memory) == NVML_SUCCESS);
  CHECK(memory.used == parts.reserved);
  for (const unsigned version : {0u, 2u, unsigned{nvmlMemory_v2} + 1}) {
    parts.version = version;
    CHECK(nvmlDeviceGetMemoryInfo_v2(nvml[0], &parts) == NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  }
}

TEST_CASE("fake NVML: running processes are counted first, then listed") {
  const Nvml nvml("h100-degraded.json");
  unsigned count = 0;
  CHECK(nvmlDeviceGetComputeRunningProcesses_v3(nvml[0], &count, nullptr) == NVML_SUCCESS);
  CHECK(count == 0);
  CHECK(nvmlDeviceGetComputeRunningProcesses_v3(nvml[6], &count, nullptr) == NVML_ERROR_INSUFFICIENT_SIZE);
  REQUIRE(count == 1);
  nvmlProcessInfo_t infos[3] = {};
  count = 3;
  CHECK(nvmlDeviceGetComputeRunningProcesses_v3(nvml[6], &count, infos) == NVML_SUCCESS);
  REQUIRE(count == 1);
  CHECK(infos[0].pid == 4242);
  CHECK(infos[0].usedGpuMemory == 20'480ull << 20);
  CHECK(infos[0].gpuInstanceId == 0xFFFFFFFF);
}

TEST_CASE("fake NVML: links to switches, one of them down") {
  const Nvml nvml("h100-degraded.json");
  for (unsigned link = 0; link < 18; ++link) {
    CHECK(state(nvml[0], link) == NVML_FEATURE_ENABLED);
    nvmlIntNvLinkDeviceType_t type{};
    CHECK(nvmlDeviceGetNvLinkRemoteDeviceType(nvml[0], link, &type) == NVML_SUCCESS);
    CHECK(type == NVML_NVLINK_DEVICE_TYPE_SWITCH);
    nvmlPciInfo_t pci{};
    CHECK(nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml[0], link, &pci) == NVML_SUCCESS);
    CHECK(pci.pciDeviceId == 0x22A310DE);
    unsigned version = 0;
    CHECK(nvmlDeviceGetNvLinkVersion(nvml[0], link, &version) == NVML_SUCCESS);
    CHECK(version == NVML_NVLINK_VERSION_4_0);
  }
  CHECK(state(nvml[0], 18) == failed(NVML_ERROR_INVALID_ARGUMENT));
  CHECK(state(nvml[2], 16) == NVML_FEATURE_ENABLED);
  CHECK(state(nvml[2], 17) == NVML_FEATURE_DISABLED);
  nvmlPciInfo_t pci{};
  nvmlIntNvLinkDeviceType_t type{};
  CHECK(nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml[2], 17, &pci) == NVML_ERROR_NOT_SUPPORTED);
  CHECK(nvmlDeviceGetNvLinkRemoteDeviceType(nvml[2], 17, &type) == NVML_ERROR_NOT_SUPPORTED);
  unsigned has = 2;
  CHECK(nvmlDeviceGetNvLinkCapability(nvml[2], 16, NVML_NVLINK_CAP_P2P_SUPPORTED, &has) == NVML_SUCCESS);
  CHECK(has == 1);
  CHECK(nvmlDeviceGetNvLinkCapability(nvml[2], 17, NVML_NVLINK_CAP_P2P_ATOMICS, &has) == NVML_SUCCESS);
  CHECK(has == 0);
  CHECK(nvmlDeviceGetNvLinkCapability(nvml[2], 17, NVML_NVLINK_CAP_VALID, &has) == NVML_SUCCESS);
  CHECK(has == 1);
  CHECK(nvmlDeviceGetNvLinkCapability(nvml[2], 17, NVML_NVLINK_CAP_COUNT, &has) == NVML_ERROR_INVALID_ARGUMENT);
}

TEST_CASE("fake NVML: links of bridges lead to the other GPU, those without a bridge are inactive") {
  const Nvml nvml("bridge-pairs.json");
  nvmlPciInfo_t pci{};
  nvmlPciInfo_t partner{};
  nvmlIntNvLinkDeviceType_t type{};
  unsigned version = 0;
  CHECK(nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml[2], 0, &pci) == NVML_SUCCESS);
  CHECK(nvmlDeviceGetPciInfo_v3(nvml[3], &partner) == NVML_SUCCESS);
  CHECK(std::string(pci.busId) == partner.busId);
  CHECK(pci.pciDeviceId == 0x20B210DE);
  CHECK(nvmlDeviceGetNvLinkRemoteDeviceType(nvml[2], 0, &type) == NVML_SUCCESS);
  CHECK(type == NVML_NVLINK_DEVICE_TYPE_GPU);
  CHECK(nvmlDeviceGetNvLinkVersion(nvml[2], 0, &version) == NVML_SUCCESS);
  CHECK(version == NVML_NVLINK_VERSION_3_0);
  CHECK(state(nvml[0], 1) == NVML_FEATURE_ENABLED);
  CHECK(state(nvml[2], 1) == NVML_FEATURE_DISABLED);
  CHECK(state(nvml[2], 2) == NVML_FEATURE_DISABLED);
  CHECK(state(nvml[2], 11) == NVML_FEATURE_DISABLED);
  CHECK(state(nvml[2], 12) == failed(NVML_ERROR_INVALID_ARGUMENT));
}

TEST_CASE("fake NVML: links of a virtual machine are up and lead nowhere that it sees") {
  MachineTable table = make_table("h200", 2);
  for (Gpu& gpu : table.gpus) {
    for (NvLink& link : gpu.links) link.hidden = true;
  }
  const Nvml nvml(table);
  CHECK(state(nvml[0], 0) == NVML_FEATURE_ENABLED);
  nvmlIntNvLinkDeviceType_t type{};
  CHECK(nvmlDeviceGetNvLinkRemoteDeviceType(nvml[0], 0, &type) == NVML_SUCCESS);
  CHECK(type == NVML_NVLINK_DEVICE_TYPE_UNKNOWN);
  nvmlPciInfo_t pci{};
  CHECK(nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml[0], 0, &pci) == NVML_SUCCESS);
  CHECK(pci.bus == 0xFFFF);
  CHECK(pci.busIdLegacy == std::string("fffffff:ffff:ff"));
  CHECK(peer(nvml[0], nvml[1], NVML_P2P_CAPS_INDEX_NVLINK) == NVML_P2P_STATUS_OK);
}

TEST_CASE("fake NVML: links of a V100") {
  const Nvml nvml(make_table("v100", 1));
  unsigned version = 0;
  CHECK(nvmlDeviceGetNvLinkVersion(nvml[0], 5, &version) == NVML_SUCCESS);
  CHECK(version == NVML_NVLINK_VERSION_2_0);
  CHECK(state(nvml[0], 6) == failed(NVML_ERROR_INVALID_ARGUMENT));
}

TEST_CASE("fake NVML: a card without NVLink does not support questions about it") {
  const Nvml nvml("pcie-loses-writes.json");
  CHECK(state(nvml[0], 0) == failed(NVML_ERROR_NOT_SUPPORTED));
  unsigned version = 0;
  CHECK(nvmlDeviceGetNvLinkVersion(nvml[0], 0, &version) == NVML_ERROR_NOT_SUPPORTED);
}

TEST_CASE("fake NVML: fields: speeds of links and their number, each with its own result") {
  nvmlFieldValue_t fields[] = {{.fieldId = NVML_FI_DEV_NVLINK_SPEED_MBPS_L0},
                               {.fieldId = NVML_FI_DEV_NVLINK_SPEED_MBPS_L11},
                               {.fieldId = NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON},
                               {.fieldId = NVML_FI_DEV_NVLINK_LINK_COUNT},
                               {.fieldId = NVML_FI_DEV_NVLINK_GET_SPEED, .scopeId = 17},
                               {.fieldId = NVML_FI_DEV_NVLINK_GET_SPEED, .scopeId = 18},
                               {.fieldId = NVML_FI_DEV_ECC_CURRENT}};
  const auto ask = [&](nvmlDevice_t device) {
    std::vector<long long> answers;
    REQUIRE(nvmlDeviceGetFieldValues(device, std::size(fields), fields) == NVML_SUCCESS);
    for (const nvmlFieldValue_t& field : fields) {
      if (field.nvmlReturn == NVML_SUCCESS) CHECK(field.valueType == NVML_VALUE_TYPE_UNSIGNED_INT);
      answers.push_back(field.nvmlReturn == NVML_SUCCESS ? field.value.uiVal : failed(field.nvmlReturn));
    }
    return answers;
  };
  constexpr long long kNo = failed(NVML_ERROR_NOT_SUPPORTED);
  using Answers = std::vector<long long>;
  {
    const Nvml nvml("h100-degraded.json");
    CHECK(ask(nvml[0]) == Answers{26562, 26562, 26562, 18, 26562, kNo, kNo});
    CHECK(ask(nvml[2]) == Answers{26562, 26562, 26562, 18, 0, kNo, kNo});  // link 17 is down
    CHECK(nvmlDeviceGetFieldValues(nvml[0], 0, fields) == NVML_ERROR_INVALID_ARGUMENT);
    CHECK(nvmlDeviceGetFieldValues(nvml[0], -1, fields) == NVML_ERROR_INVALID_ARGUMENT);
  }
  {
    const Nvml nvml("bridge-pairs.json");
    CHECK(ask(nvml[0]) == Answers{25000, kNo, 25000, 12, kNo, kNo, kNo});
  }
  {
    MachineTable broken = make_table("h200", 1);
    broken.gpus[0].links[0].active = broken.gpus[0].links[5].active = false;
    const Nvml nvml(broken);
    CHECK(ask(nvml[0]) == Answers{0, 26562, 26562, 18, 26562, kNo, kNo});
  }
  const Nvml nvml("pcie-loses-writes.json");
  CHECK(ask(nvml[0]) == Answers{kNo, kNo, kNo, 0, kNo, kNo, kNo});
}

TEST_CASE("fake NVML: peers and distances as the table has them, a pair that loses writes claims to work") {
  {
    const Nvml nvml("pcie-loses-writes.json");
    CHECK(peer(nvml[0], nvml[1]) == NVML_P2P_STATUS_OK);
    CHECK(peer(nvml[2], nvml[3]) == NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED);
    CHECK(peer(nvml[2], nvml[3], NVML_P2P_CAPS_INDEX_READ) == NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED);
    CHECK(peer(nvml[0], nvml[1], NVML_P2P_CAPS_INDEX_NVLINK) == NVML_P2P_STATUS_NOT_SUPPORTED);
    CHECK(peer(nvml[0], nvml[1], NVML_P2P_CAPS_INDEX_PCI) == NVML_P2P_STATUS_OK);
    CHECK(peer(nvml[0], nvml[1], NVML_P2P_CAPS_INDEX_UNKNOWN) == failed(NVML_ERROR_INVALID_ARGUMENT));
    CHECK(peer(nvml[0], nvml[0]) == failed(NVML_ERROR_INVALID_ARGUMENT));
    CHECK(level(nvml[0], nvml[1]) == NVML_TOPOLOGY_HOSTBRIDGE);
  }
  {
    const Nvml nvml("bridge-pairs.json");
    CHECK(peer(nvml[0], nvml[1], NVML_P2P_CAPS_INDEX_NVLINK) == NVML_P2P_STATUS_OK);
    CHECK(peer(nvml[0], nvml[2], NVML_P2P_CAPS_INDEX_NVLINK) == NVML_P2P_STATUS_NOT_SUPPORTED);
    CHECK(level(nvml[0], nvml[1]) == NVML_TOPOLOGY_SINGLE);
    CHECK(level(nvml[2], nvml[3]) == NVML_TOPOLOGY_MULTIPLE);
    CHECK(level(nvml[3], nvml[0]) == NVML_TOPOLOGY_SYSTEM);
    CHECK(level(nvml[3], nvml[3]) == NVML_TOPOLOGY_INTERNAL);
  }
  MachineTable one_way = make_table("h200", 8);
  one_way.peers[1][2] = PeerAccess::kNone;
  const Nvml nvml(one_way);
  CHECK(peer(nvml[1], nvml[2]) == NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED);
  CHECK(peer(nvml[1], nvml[2], NVML_P2P_CAPS_INDEX_NVLINK) == NVML_P2P_STATUS_NOT_SUPPORTED);
  CHECK(peer(nvml[2], nvml[1]) == NVML_P2P_STATUS_OK);
  CHECK(peer(nvml[2], nvml[1], NVML_P2P_CAPS_INDEX_NVLINK) == NVML_P2P_STATUS_OK);
  CHECK(peer(nvml[0], nvml[7], NVML_P2P_CAPS_INDEX_NVLINK) == NVML_P2P_STATUS_OK);
  CHECK(peer(nvml[0], nvml[7], NVML_P2P_CAPS_INDEX_ATOMICS) == NVML_P2P_STATUS_OK);
  CHECK(level(nvml[0], nvml[3]) == NVML_TOPOLOGY_NODE);
}

TEST_CASE("fake NVML: the fabric's state, in all versions of its structure") {
  const auto fabric = [](nvmlDevice_t device, unsigned version) {
    nvmlGpuFabricInfoV_t info{};
    std::memset(&info, 0xAB, sizeof info);
    info.version = version;
    const nvmlReturn_t result = nvmlDeviceGetGpuFabricInfoV(device, &info);
    return std::pair(result, info);
  };
  {
    const Nvml nvml("h100-degraded.json");
    nvmlGpuFabricInfo_t old{};
    CHECK(nvmlDeviceGetGpuFabricInfo(nvml[0], &old) == NVML_SUCCESS);
    CHECK(old.state == NVML_GPU_FABRIC_STATE_COMPLETED);
    CHECK(old.status == NVML_SUCCESS);
    CHECK(nvmlDeviceGetGpuFabricInfo(nvml[5], &old) == NVML_SUCCESS);
    CHECK(old.state == NVML_GPU_FABRIC_STATE_IN_PROGRESS);

    const auto [result, info] = fabric(nvml[0], nvmlGpuFabricInfo_v3);
    CHECK(result == NVML_SUCCESS);
    CHECK(info.state == NVML_GPU_FABRIC_STATE_COMPLETED);
    CHECK(NVML_GPU_FABRIC_HEALTH_TEST(info.healthMask, _DEGRADED_BW, _FALSE));
    CHECK(NVML_GPU_FABRIC_HEALTH_TEST(info.healthMask, _INCORRECT_CONFIGURATION, _NONE));
    CHECK(info.healthSummary == NVML_GPU_FABRIC_HEALTH_SUMMARY_HEALTHY);
    CHECK(fabric(nvml[5], nvmlGpuFabricInfo_v3).second.state == NVML_GPU_FABRIC_STATE_IN_PROGRESS);

    const auto [result_2, info_2] = fabric(nvml[2], nvmlGpuFabricInfo_v2);
    CHECK(result_2 == NVML_SUCCESS);
    CHECK(info_2.version == nvmlGpuFabricInfo_v2);
    CHECK(NVML_GPU_FABRIC_HEALTH_TEST(info_2.healthMask, _DEGRADED_BW, _TRUE));
    CHECK(info_2.healthSummary == 0xAB);  // beyond the structure of version 2
    for (const unsigned version : {0u, 3u, unsigned{nvmlGpuFabricInfo_v3} + (1u << 24)}) {
      CHECK(fabric(nvml[0], version).first == NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    }
  }
  const Nvml nvml("mixed-cloud.json");
  CHECK(fabric(nvml[2], nvmlGpuFabricInfo_v3).second.state == NVML_GPU_FABRIC_STATE_NOT_STARTED);
  CHECK(fabric(nvml[0], nvmlGpuFabricInfo_v3).first == NVML_ERROR_NOT_SUPPORTED);  // an A100
}

TEST_CASE("fake NVML: MIG mode, driver versions, and what a cloud does not answer") {
  const Nvml nvml("mixed-cloud.json");
  unsigned current = 2;
  unsigned pending = 2;
  CHECK(nvmlDeviceGetMigMode(nvml[0], &current, &pending) == NVML_SUCCESS);
  CHECK(current == NVML_DEVICE_MIG_DISABLE);
  CHECK(nvmlDeviceGetMigMode(nvml[1], &current, &pending) == NVML_SUCCESS);
  CHECK(current == NVML_DEVICE_MIG_ENABLE);
  CHECK(pending == NVML_DEVICE_MIG_ENABLE);
  int version = 0;
  CHECK(nvmlSystemGetCudaDriverVersion_v2(&version) == NVML_SUCCESS);
  CHECK(version == 12040);
  std::array<char, 80> driver{};
  CHECK(nvmlSystemGetDriverVersion(driver.data(), driver.size()) == NVML_SUCCESS);
  CHECK(std::string(driver.data()) == "550.163.01");
  CHECK(peer(nvml[0], nvml[1]) == failed(NVML_ERROR_NOT_SUPPORTED));
  unsigned long nodes = 0;
  CHECK(nvmlDeviceGetMemoryAffinity(nvml[0], 1, &nodes, NVML_AFFINITY_SCOPE_NODE) == NVML_ERROR_NO_PERMISSION);
}

}  // namespace shardscope::test
