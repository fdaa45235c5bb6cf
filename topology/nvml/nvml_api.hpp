// What we use of NVML, declared by ourselves: the library is opened at run time, and a build without NVIDIA's header
// has it too. tests/topology/nvml_declarations_test.cpp compares every structure, number and function with that header.
//
// Source of numbers and layouts: nvml.h of CUDA 13.0. What a name means does not change between drivers; structures
// that have grown carry their size in `version`.
#pragma once

#include <cstddef>
#include <string_view>

namespace shardscope::topology::nvml_api {

// nvmlReturn_t, the values that we look at.
using Return = unsigned;
inline constexpr Return kSuccess = 0;
inline constexpr Return kInvalidArgument = 2;
inline constexpr Return kNotSupported = 3;
inline constexpr Return kNoPermission = 4;
inline constexpr Return kInsufficientSize = 7;
inline constexpr Return kInsufficientPower = 8;
inline constexpr Return kDriverNotLoaded = 9;
inline constexpr Return kIrqIssue = 11;
inline constexpr Return kFunctionNotFound = 13;
inline constexpr Return kGpuIsLost = 15;
inline constexpr Return kResetRequired = 16;
inline constexpr Return kOperatingSystem = 17;
inline constexpr Return kVersionMismatch = 18;  // of driver and library
inline constexpr Return kUnknown = 999;

struct DeviceTag;  // nvmlDevice_st
using Device = DeviceTag*;

struct PciInfo {
  char legacy_bus_id[16];
  unsigned domain, bus, device;
  unsigned device_and_vendor;  // 0x233010DE
  unsigned subsystem;
  char bus_id[32];
};

struct Memory {
  unsigned long long total, free, used;
};

struct ProcessInfo {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};

union Value {
  double real;
  int integer;
  unsigned count;
  unsigned long long wide_count;
};

struct FieldValue {
  unsigned field, scope;
  long long timestamp, latency_us;
  unsigned type;
  Return result;
  Value value;
};

struct FabricInfo {
  unsigned char cluster[16];
  Return status;
  unsigned clique;
  unsigned char state;
};
/// Version 3; version 2 is its begin, up to health_summary.
struct FabricInfoV {
  unsigned version;
  unsigned char cluster[16];
  Return status;  // means something in the state "completed" alone
  unsigned clique;
  unsigned char state;
  unsigned health_mask;
  unsigned char health_summary;
};
inline constexpr unsigned kFabricVersion2 = offsetof(FabricInfoV, health_summary) | 2u << 24;
inline constexpr unsigned kFabricVersion3 = sizeof(FabricInfoV) | 3u << 24;
inline constexpr unsigned kFabricNotSupported = 0, kFabricNotStarted = 1, kFabricInProgress = 2, kFabricCompleted = 3;

inline constexpr unsigned kDisabled = 0, kEnabled = 1;                           // nvmlEnableState_t
inline constexpr unsigned kClockSm = 1, kClockMemory = 2;                        // nvmlClockType_t
inline constexpr unsigned kTemperatureGpu = 0;                                   // nvmlTemperatureSensors_t
inline constexpr unsigned kScopeNode = 0;                                        // nvmlAffinityScope_t
inline constexpr unsigned kRemoteGpu = 0, kRemoteIbmNpu = 1, kRemoteSwitch = 2;  // nvmlIntNvLinkDeviceType_t
inline constexpr unsigned kInternal = 0, kSingle = 10, kMultiple = 20, kHostBridge = 30, kNode = 40,
                          kSystem = 50;                                    // nvmlGpuTopologyLevel_t
inline constexpr unsigned kPeerRead = 0, kPeerWrite = 1, kPeerNvLink = 2;  // nvmlGpuP2PCapsIndex_t
inline constexpr unsigned kPeerOk = 0, kPeerChipset = 1, kPeerGpu = 2, kPeerTopology = 3, kPeerRegistry = 4,
                          kPeerNotSupported = 5, kPeerUnknown = 6;  // nvmlGpuP2PStatus_t
// NVML_NVLINK_VERSION_…
inline constexpr unsigned kNvLink1 = 1, kNvLink2 = 2, kNvLink22 = 3, kNvLink3 = 4, kNvLink31 = 5, kNvLink4 = 6,
                          kNvLink5 = 7;
// NVML_FI_DEV_NVLINK_…
inline constexpr unsigned kFieldSpeedL0 = 84, kFieldSpeedL6 = 132, kFieldSpeedCommon = 90, kFieldSpeed = 164;

/// A bit of "clocks event reasons" ("clocks throttle reasons" until driver 535), and its word in our documents.
struct ClockReason {
  unsigned long long bit;
  std::string_view word;
};
inline constexpr unsigned long long kIdle = 0x1;
inline constexpr ClockReason kClockReasons[] = {{kIdle, "gpu-idle"},
                                                {0x2, "applications-clocks-setting"},
                                                {0x4, "sw-power-cap"},
                                                {0x8, "hw-slowdown"},
                                                {0x10, "sync-boost"},
                                                {0x20, "sw-thermal-slowdown"},
                                                {0x40, "hw-thermal-slowdown"},
                                                {0x80, "hw-power-brake-slowdown"},
                                                {0x100, "display-clock-setting"}};

using AskCount = Return (*)(Device, unsigned*);
using AskText = Return (*)(Device, char*, unsigned length);
using AskClock = Return (*)(Device, unsigned type, unsigned* mhz);
using AskSet = Return (*)(Device, unsigned words, unsigned long* set, unsigned scope);
using AskLink = Return (*)(Device, unsigned link, unsigned*);
using AskReasons = Return (*)(Device, unsigned long long*);

/// The library's functions; nullptr: this one has none of that name.
struct Functions {
  Return (*init)() = nullptr;
  Return (*shutdown)() = nullptr;
  const char* (*error_string)(Return) = nullptr;
  Return (*driver_version)(char*, unsigned length) = nullptr;
  Return (*cuda_version)(int*) = nullptr;
  Return (*count)(unsigned*) = nullptr;
  Return (*handle)(unsigned index, Device*) = nullptr;
  AskText name = nullptr;
  AskText uuid = nullptr;
  Return (*pci)(Device, PciInfo*) = nullptr;
  Return (*memory)(Device, Memory*) = nullptr;
  AskCount bus_width = nullptr;  // bits
  AskSet memory_affinity = nullptr;
  AskSet cpu_affinity = nullptr;
  AskCount numa_node = nullptr;
  AskClock clock = nullptr;
  AskClock clock_most = nullptr;
  AskReasons event_reasons = nullptr;
  AskReasons throttle_reasons = nullptr;
  Return (*temperature)(Device, unsigned sensor, unsigned* celsius) = nullptr;
  AskCount power = nullptr;  // mW
  AskCount power_limit = nullptr;
  AskCount persistence = nullptr;
  Return (*compute)(Device, int* major, int* minor) = nullptr;
  Return (*mig)(Device, unsigned* current, unsigned* pending) = nullptr;
  Return (*processes)(Device, unsigned* count, ProcessInfo*) = nullptr;
  AskCount pcie_generation = nullptr;
  AskCount pcie_width = nullptr;
  AskCount pcie_generation_most = nullptr;
  AskCount pcie_width_most = nullptr;
  AskLink link_state = nullptr;
  AskLink link_version = nullptr;
  AskLink link_remote_type = nullptr;
  Return (*link_remote)(Device, unsigned link, PciInfo*) = nullptr;
  Return (*fields)(Device, int count, FieldValue*) = nullptr;
  Return (*common_ancestor)(Device, Device, unsigned* level) = nullptr;
  Return (*peer)(Device who, Device whose, unsigned capability, unsigned* status) = nullptr;
  Return (*fabric)(Device, FabricInfo*) = nullptr;
  Return (*fabric_v)(Device, FabricInfoV*) = nullptr;
};

/// Calls visit(name in the library, pointer) for each.
template <class Visit>
void visit_functions(Functions& functions, const Visit& visit) {
  visit("nvmlInit_v2", functions.init);
  visit("nvmlShutdown", functions.shutdown);
  visit("nvmlErrorString", functions.error_string);
  visit("nvmlSystemGetDriverVersion", functions.driver_version);
  visit("nvmlSystemGetCudaDriverVersion_v2", functions.cuda_version);
  visit("nvmlDeviceGetCount_v2", functions.count);
  visit("nvmlDeviceGetHandleByIndex_v2", functions.handle);
  visit("nvmlDeviceGetName", functions.name);
  visit("nvmlDeviceGetUUID", functions.uuid);
  visit("nvmlDeviceGetPciInfo_v3", functions.pci);
  visit("nvmlDeviceGetMemoryInfo", functions.memory);
  visit("nvmlDeviceGetMemoryBusWidth", functions.bus_width);
  visit("nvmlDeviceGetMemoryAffinity", functions.memory_affinity);
  visit("nvmlDeviceGetCpuAffinityWithinScope", functions.cpu_affinity);
  visit("nvmlDeviceGetNumaNodeId", functions.numa_node);
  visit("nvmlDeviceGetClockInfo", functions.clock);
  visit("nvmlDeviceGetMaxClockInfo", functions.clock_most);
  visit("nvmlDeviceGetCurrentClocksEventReasons", functions.event_reasons);
  visit("nvmlDeviceGetCurrentClocksThrottleReasons", functions.throttle_reasons);
  visit("nvmlDeviceGetTemperature", functions.temperature);
  visit("nvmlDeviceGetPowerUsage", functions.power);
  visit("nvmlDeviceGetEnforcedPowerLimit", functions.power_limit);
  visit("nvmlDeviceGetPersistenceMode", functions.persistence);
  visit("nvmlDeviceGetCudaComputeCapability", functions.compute);
  visit("nvmlDeviceGetMigMode", functions.mig);
  visit("nvmlDeviceGetComputeRunningProcesses_v3", functions.processes);
  visit("nvmlDeviceGetCurrPcieLinkGeneration", functions.pcie_generation);
  visit("nvmlDeviceGetCurrPcieLinkWidth", functions.pcie_width);
  visit("nvmlDeviceGetMaxPcieLinkGeneration", functions.pcie_generation_most);
  visit("nvmlDeviceGetMaxPcieLinkWidth", functions.pcie_width_most);
  visit("nvmlDeviceGetNvLinkState", functions.link_state);
  visit("nvmlDeviceGetNvLinkVersion", functions.link_version);
  visit("nvmlDeviceGetNvLinkRemoteDeviceType", functions.link_remote_type);
  visit("nvmlDeviceGetNvLinkRemotePciInfo_v2", functions.link_remote);
  visit("nvmlDeviceGetFieldValues", functions.fields);
  visit("nvmlDeviceGetTopologyCommonAncestor", functions.common_ancestor);
  visit("nvmlDeviceGetP2PStatus", functions.peer);
  visit("nvmlDeviceGetGpuFabricInfo", functions.fabric);
  visit("nvmlDeviceGetGpuFabricInfoV", functions.fabric_v);
}

}  // namespace shardscope::topology::nvml_api
