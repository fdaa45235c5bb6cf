// The words by which JSON files and environment variables name what a machine table holds, and what NVML's stand-in
// has: its functions and errors by name. Private to machine tables, environment and NVML's stand-in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tests/emulation/fakes/machine_table.hpp"

namespace shardscope::emulation {

template <class T>
struct Word {
  std::string_view text;
  T value;
};

template <class T, size_t kCount>
std::string known_words(const Word<T> (&words)[kCount]) {
  std::string known;
  for (const Word<T>& word : words) {
    if (!known.empty()) known += ", ";
    known += word.text;
  }
  return known;
}

template <class T, size_t kCount>
std::string_view word_of(const Word<T> (&words)[kCount], T value) {
  for (const Word<T>& word : words) {
    if (word.value == value) return word.text;
  }
  return "?";
}

inline constexpr Word<Fabric> kFabricWords[] = {{"not-supported", Fabric::kNotSupported},
                                                {"not-started", Fabric::kNotStarted},
                                                {"in-progress", Fabric::kInProgress},
                                                {"completed", Fabric::kCompleted}};
/// "X": the GPU itself.
inline constexpr Word<PeerAccess> kPeerWords[] = {{"works", PeerAccess::kWorks},
                                                  {"none", PeerAccess::kNone},
                                                  {"loses-writes", PeerAccess::kLosesWrites},
                                                  {"X", PeerAccess::kWorks}};
inline constexpr Word<Distance> kDistanceWords[] = {{"X", Distance::kSelf},    {"PIX", Distance::kPix},
                                                    {"PXB", Distance::kPxb},   {"PHB", Distance::kPhb},
                                                    {"NODE", Distance::kNode}, {"SYS", Distance::kSys}};
/// The bits of nvml.h's nvmlClocksEventReason….
inline constexpr Word<uint64_t> kClockReasonWords[] = {{"gpu-idle", 0x1},
                                                       {"applications-clocks-setting", 0x2},
                                                       {"sw-power-cap", 0x4},
                                                       {"hw-slowdown", 0x8},
                                                       {"sync-boost", 0x10},
                                                       {"sw-thermal-slowdown", 0x20},
                                                       {"hw-thermal-slowdown", 0x40},
                                                       {"hw-power-brake-slowdown", 0x80},
                                                       {"display-clock-setting", 0x100}};
/// Some of nvml.h's nvmlReturn_t, without NVML_ERROR_.
inline constexpr Word<int> kNvmlErrorWords[] = {
    {"NOT_SUPPORTED", 3}, {"NO_PERMISSION", 4},   {"DRIVER_NOT_LOADED", 9},        {"FUNCTION_NOT_FOUND", 13},
    {"GPU_IS_LOST", 15},  {"RESET_REQUIRED", 16}, {"LIB_RM_VERSION_MISMATCH", 18}, {"NO_DATA", 21},
    {"UNKNOWN", 999}};
/// What the stand-in for NVML exports and a table can make fail.
inline constexpr std::string_view kNvmlFunctions[] = {
    "nvmlInit_v2",
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetHandleByPciBusId_v2",
    "nvmlDeviceGetIndex",
    "nvmlDeviceGetName",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetMemoryBusWidth",
    "nvmlDeviceGetMemoryAffinity",
    "nvmlDeviceGetCpuAffinityWithinScope",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetCurrPcieLinkGeneration",
    "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetMaxPcieLinkGeneration",
    "nvmlDeviceGetMaxPcieLinkWidth",
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetNvLinkVersion",
    "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    "nvmlDeviceGetNvLinkRemoteDeviceType",
    "nvmlDeviceGetNvLinkCapability",
    "nvmlDeviceGetTopologyCommonAncestor",
    "nvmlDeviceGetP2PStatus",
    "nvmlDeviceGetGpuFabricInfo",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetNumaNodeId",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetComputeRunningProcesses_v3",
};

}  // namespace shardscope::emulation
