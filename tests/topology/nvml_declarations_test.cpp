// Our own declarations of NVML against NVIDIA's header: whoever compiles this has proved that they agree.
#include <nvml.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>

#include <catch2/catch.hpp>

#include "tests/emulation/fakes/machine_words.hpp"
#include "topology/nvml/nvml_api.hpp"

// Several that products of today still call are marked as deprecated.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace shardscope::topology::nvml_api {
namespace {

// ---- structures ----

template <class Ours, class OurMember, class Theirs, class TheirMember>
constexpr bool same_size(OurMember Ours::*, TheirMember Theirs::*) {
  return sizeof(OurMember) == sizeof(TheirMember);
}

static_assert(sizeof(PciInfo) == sizeof(nvmlPciInfo_t));
static_assert(offsetof(PciInfo, legacy_bus_id) == offsetof(nvmlPciInfo_t, busIdLegacy) &&
              same_size(&PciInfo::legacy_bus_id, &nvmlPciInfo_t::busIdLegacy));
static_assert(offsetof(PciInfo, domain) == offsetof(nvmlPciInfo_t, domain) &&
              same_size(&PciInfo::domain, &nvmlPciInfo_t::domain));
static_assert(offsetof(PciInfo, bus) == offsetof(nvmlPciInfo_t, bus) && same_size(&PciInfo::bus, &nvmlPciInfo_t::bus));
static_assert(offsetof(PciInfo, device) == offsetof(nvmlPciInfo_t, device) &&
              same_size(&PciInfo::device, &nvmlPciInfo_t::device));
static_assert(offsetof(PciInfo, device_and_vendor) == offsetof(nvmlPciInfo_t, pciDeviceId) &&
              same_size(&PciInfo::device_and_vendor, &nvmlPciInfo_t::pciDeviceId));
static_assert(offsetof(PciInfo, subsystem) == offsetof(nvmlPciInfo_t, pciSubSystemId) &&
              same_size(&PciInfo::subsystem, &nvmlPciInfo_t::pciSubSystemId));
static_assert(offsetof(PciInfo, bus_id) == offsetof(nvmlPciInfo_t, busId) &&
              same_size(&PciInfo::bus_id, &nvmlPciInfo_t::busId));

static_assert(sizeof(Memory) == sizeof(nvmlMemory_t));
static_assert(offsetof(Memory, total) == offsetof(nvmlMemory_t, total) &&
              same_size(&Memory::total, &nvmlMemory_t::total));
static_assert(offsetof(Memory, free) == offsetof(nvmlMemory_t, free) && same_size(&Memory::free, &nvmlMemory_t::free));
static_assert(offsetof(Memory, used) == offsetof(nvmlMemory_t, used) && same_size(&Memory::used, &nvmlMemory_t::used));

static_assert(sizeof(ProcessInfo) == sizeof(nvmlProcessInfo_t));
static_assert(offsetof(ProcessInfo, pid) == offsetof(nvmlProcessInfo_t, pid) &&
              same_size(&ProcessInfo::pid, &nvmlProcessInfo_t::pid));
static_assert(offsetof(ProcessInfo, used_bytes) == offsetof(nvmlProcessInfo_t, usedGpuMemory) &&
              same_size(&ProcessInfo::used_bytes, &nvmlProcessInfo_t::usedGpuMemory));
static_assert(offsetof(ProcessInfo, gpu_instance) == offsetof(nvmlProcessInfo_t, gpuInstanceId) &&
              same_size(&ProcessInfo::gpu_instance, &nvmlProcessInfo_t::gpuInstanceId));
static_assert(offsetof(ProcessInfo, compute_instance) == offsetof(nvmlProcessInfo_t, computeInstanceId) &&
              same_size(&ProcessInfo::compute_instance, &nvmlProcessInfo_t::computeInstanceId));

static_assert(sizeof(Value) == sizeof(nvmlValue_t));
static_assert(sizeof(Value::count) == sizeof(nvmlValue_t::uiVal));
static_assert(sizeof(FieldValue) == sizeof(nvmlFieldValue_t));
static_assert(offsetof(FieldValue, field) == offsetof(nvmlFieldValue_t, fieldId) &&
              same_size(&FieldValue::field, &nvmlFieldValue_t::fieldId));
static_assert(offsetof(FieldValue, scope) == offsetof(nvmlFieldValue_t, scopeId) &&
              same_size(&FieldValue::scope, &nvmlFieldValue_t::scopeId));
static_assert(offsetof(FieldValue, timestamp) == offsetof(nvmlFieldValue_t, timestamp) &&
              same_size(&FieldValue::timestamp, &nvmlFieldValue_t::timestamp));
static_assert(offsetof(FieldValue, latency_us) == offsetof(nvmlFieldValue_t, latencyUsec) &&
              same_size(&FieldValue::latency_us, &nvmlFieldValue_t::latencyUsec));
static_assert(offsetof(FieldValue, type) == offsetof(nvmlFieldValue_t, valueType) &&
              same_size(&FieldValue::type, &nvmlFieldValue_t::valueType));
static_assert(offsetof(FieldValue, result) == offsetof(nvmlFieldValue_t, nvmlReturn) &&
              same_size(&FieldValue::result, &nvmlFieldValue_t::nvmlReturn));
static_assert(offsetof(FieldValue, value) == offsetof(nvmlFieldValue_t, value) &&
              same_size(&FieldValue::value, &nvmlFieldValue_t::value));

static_assert(sizeof(FabricInfo) == sizeof(nvmlGpuFabricInfo_t));
static_assert(offsetof(FabricInfo, cluster) == offsetof(nvmlGpuFabricInfo_t, clusterUuid) &&
              same_size(&FabricInfo::cluster, &nvmlGpuFabricInfo_t::clusterUuid));
static_assert(offsetof(FabricInfo, status) == offsetof(nvmlGpuFabricInfo_t, status) &&
              same_size(&FabricInfo::status, &nvmlGpuFabricInfo_t::status));
static_assert(offsetof(FabricInfo, clique) == offsetof(nvmlGpuFabricInfo_t, cliqueId) &&
              same_size(&FabricInfo::clique, &nvmlGpuFabricInfo_t::cliqueId));
static_assert(offsetof(FabricInfo, state) == offsetof(nvmlGpuFabricInfo_t, state) &&
              same_size(&FabricInfo::state, &nvmlGpuFabricInfo_t::state));

static_assert(sizeof(FabricInfoV) == sizeof(nvmlGpuFabricInfo_v3_t));
static_assert(offsetof(FabricInfoV, version) == offsetof(nvmlGpuFabricInfo_v3_t, version) &&
              same_size(&FabricInfoV::version, &nvmlGpuFabricInfo_v3_t::version));
static_assert(offsetof(FabricInfoV, cluster) == offsetof(nvmlGpuFabricInfo_v3_t, clusterUuid) &&
              same_size(&FabricInfoV::cluster, &nvmlGpuFabricInfo_v3_t::clusterUuid));
static_assert(offsetof(FabricInfoV, status) == offsetof(nvmlGpuFabricInfo_v3_t, status) &&
              same_size(&FabricInfoV::status, &nvmlGpuFabricInfo_v3_t::status));
static_assert(offsetof(FabricInfoV, clique) == offsetof(nvmlGpuFabricInfo_v3_t, cliqueId) &&
              same_size(&FabricInfoV::clique, &nvmlGpuFabricInfo_v3_t::cliqueId));
static_assert(offsetof(FabricInfoV, state) == offsetof(nvmlGpuFabricInfo_v3_t, state) &&
              same_size(&FabricInfoV::state, &nvmlGpuFabricInfo_v3_t::state));
static_assert(offsetof(FabricInfoV, health_mask) == offsetof(nvmlGpuFabricInfo_v3_t, healthMask) &&
              same_size(&FabricInfoV::health_mask, &nvmlGpuFabricInfo_v3_t::healthMask));
static_assert(offsetof(FabricInfoV, health_summary) == offsetof(nvmlGpuFabricInfo_v3_t, healthSummary) &&
              same_size(&FabricInfoV::health_summary, &nvmlGpuFabricInfo_v3_t::healthSummary));
static_assert(offsetof(FabricInfoV, state) == offsetof(nvmlGpuFabricInfo_v2_t, state) &&
              same_size(&FabricInfoV::state, &nvmlGpuFabricInfo_v2_t::state));
static_assert(offsetof(FabricInfoV, health_mask) == offsetof(nvmlGpuFabricInfo_v2_t, healthMask) &&
              same_size(&FabricInfoV::health_mask, &nvmlGpuFabricInfo_v2_t::healthMask));
static_assert(kFabricVersion2 == nvmlGpuFabricInfo_v2);
static_assert(kFabricVersion3 == nvmlGpuFabricInfo_v3);

// ---- numbers ----

static_assert(kSuccess == NVML_SUCCESS && kInvalidArgument == NVML_ERROR_INVALID_ARGUMENT);
static_assert(kNotSupported == NVML_ERROR_NOT_SUPPORTED && kNoPermission == NVML_ERROR_NO_PERMISSION);
static_assert(kInsufficientSize == NVML_ERROR_INSUFFICIENT_SIZE);
static_assert(kDriverNotLoaded == NVML_ERROR_DRIVER_NOT_LOADED);
static_assert(kFunctionNotFound == NVML_ERROR_FUNCTION_NOT_FOUND && kUnknown == NVML_ERROR_UNKNOWN);
static_assert(kOperatingSystem == NVML_ERROR_OPERATING_SYSTEM);
static_assert(kVersionMismatch == NVML_ERROR_LIB_RM_VERSION_MISMATCH);
static_assert(kFabricNotSupported == NVML_GPU_FABRIC_STATE_NOT_SUPPORTED);
static_assert(kFabricNotStarted == NVML_GPU_FABRIC_STATE_NOT_STARTED);
static_assert(kFabricInProgress == NVML_GPU_FABRIC_STATE_IN_PROGRESS);
static_assert(kFabricCompleted == NVML_GPU_FABRIC_STATE_COMPLETED);
static_assert(kDisabled == NVML_FEATURE_DISABLED && kEnabled == NVML_FEATURE_ENABLED);
static_assert(kClockSm == NVML_CLOCK_SM && kClockMemory == NVML_CLOCK_MEM);
static_assert(kTemperatureGpu == NVML_TEMPERATURE_GPU);
static_assert(kScopeNode == NVML_AFFINITY_SCOPE_NODE);
static_assert(kRemoteGpu == NVML_NVLINK_DEVICE_TYPE_GPU && kRemoteIbmNpu == NVML_NVLINK_DEVICE_TYPE_IBMNPU);
static_assert(kRemoteSwitch == NVML_NVLINK_DEVICE_TYPE_SWITCH);
static_assert(kInternal == NVML_TOPOLOGY_INTERNAL && kSingle == NVML_TOPOLOGY_SINGLE);
static_assert(kMultiple == NVML_TOPOLOGY_MULTIPLE && kHostBridge == NVML_TOPOLOGY_HOSTBRIDGE);
static_assert(kNode == NVML_TOPOLOGY_NODE && kSystem == NVML_TOPOLOGY_SYSTEM);
static_assert(kPeerRead == NVML_P2P_CAPS_INDEX_READ && kPeerWrite == NVML_P2P_CAPS_INDEX_WRITE);
static_assert(kPeerNvLink == NVML_P2P_CAPS_INDEX_NVLINK);
static_assert(kPeerOk == NVML_P2P_STATUS_OK && kPeerChipset == NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED);
static_assert(kPeerGpu == NVML_P2P_STATUS_GPU_NOT_SUPPORTED);
static_assert(kPeerTopology == NVML_P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED);
static_assert(kPeerRegistry == NVML_P2P_STATUS_DISABLED_BY_REGKEY);
static_assert(kPeerNotSupported == NVML_P2P_STATUS_NOT_SUPPORTED && kPeerUnknown == NVML_P2P_STATUS_UNKNOWN);
static_assert(kNvLink1 == NVML_NVLINK_VERSION_1_0 && kNvLink2 == NVML_NVLINK_VERSION_2_0);
static_assert(kNvLink22 == NVML_NVLINK_VERSION_2_2 && kNvLink3 == NVML_NVLINK_VERSION_3_0);
static_assert(kNvLink31 == NVML_NVLINK_VERSION_3_1 && kNvLink4 == NVML_NVLINK_VERSION_4_0);
static_assert(kNvLink5 == NVML_NVLINK_VERSION_5_0);
static_assert(kFieldSpeedL0 == NVML_FI_DEV_NVLINK_SPEED_MBPS_L0);
static_assert(kFieldSpeedL0 + 5 == NVML_FI_DEV_NVLINK_SPEED_MBPS_L5);
static_assert(kFieldSpeedL6 == NVML_FI_DEV_NVLINK_SPEED_MBPS_L6);
static_assert(kFieldSpeedL6 + 5 == NVML_FI_DEV_NVLINK_SPEED_MBPS_L11);
static_assert(kFieldSpeedCommon == NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON);
static_assert(kFieldSpeed == NVML_FI_DEV_NVLINK_GET_SPEED);
static_assert(sizeof(nvmlReturn_t) == sizeof(Return));

// ---- functions ----

/// Passed alike: pointers to what has one size and kind, or integers and enumerations of one size.
template <class Ours, class Theirs>
constexpr bool alike() {
  using O = std::remove_cv_t<Ours>;
  using T = std::remove_cv_t<Theirs>;
  if constexpr (std::is_pointer_v<O> && std::is_pointer_v<T>) {
    using OursTo = std::remove_pointer_t<O>;
    using TheirsTo = std::remove_pointer_t<T>;
    if constexpr (std::is_same_v<std::remove_cv_t<OursTo>, DeviceTag>) {
      return std::is_same_v<T, nvmlDevice_t>;
    } else {
      return alike<OursTo, TheirsTo>();
    }
  } else if constexpr (std::is_class_v<O> && std::is_class_v<T>) {
    return sizeof(O) == sizeof(T);
  } else {
    constexpr bool kIntegers = std::is_integral_v<O> && (std::is_integral_v<T> || std::is_enum_v<T>);
    return kIntegers && sizeof(O) == sizeof(T);
  }
}

template <class Ours, class Theirs>
struct SameCall : std::false_type {};
template <class OursResult, class... Ours, class TheirsResult, class... Theirs>
struct SameCall<OursResult (*)(Ours...), TheirsResult (*)(Theirs...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(Ours) == sizeof...(Theirs)) {
      return alike<OursResult, TheirsResult>() && (alike<Ours, Theirs>() && ...);
    }
    return false;
  }();
};

template <class Ours, class Theirs>
constexpr bool same_call(Ours Functions::*, Theirs*) {
  return SameCall<Ours, Theirs*>::value;
}

static_assert(same_call(&Functions::init, nvmlInit_v2));
static_assert(same_call(&Functions::shutdown, nvmlShutdown));
static_assert(same_call(&Functions::error_string, nvmlErrorString));
static_assert(same_call(&Functions::driver_version, nvmlSystemGetDriverVersion));
static_assert(same_call(&Functions::cuda_version, nvmlSystemGetCudaDriverVersion_v2));
static_assert(same_call(&Functions::count, nvmlDeviceGetCount_v2));
static_assert(same_call(&Functions::handle, nvmlDeviceGetHandleByIndex_v2));
static_assert(same_call(&Functions::name, nvmlDeviceGetName));
static_assert(same_call(&Functions::uuid, nvmlDeviceGetUUID));
static_assert(same_call(&Functions::pci, nvmlDeviceGetPciInfo_v3));
static_assert(same_call(&Functions::memory, nvmlDeviceGetMemoryInfo));
static_assert(same_call(&Functions::bus_width, nvmlDeviceGetMemoryBusWidth));
static_assert(same_call(&Functions::memory_affinity, nvmlDeviceGetMemoryAffinity));
static_assert(same_call(&Functions::cpu_affinity, nvmlDeviceGetCpuAffinityWithinScope));
static_assert(same_call(&Functions::numa_node, nvmlDeviceGetNumaNodeId));
static_assert(same_call(&Functions::clock, nvmlDeviceGetClockInfo));
static_assert(same_call(&Functions::clock_most, nvmlDeviceGetMaxClockInfo));
static_assert(same_call(&Functions::event_reasons, nvmlDeviceGetCurrentClocksEventReasons));
static_assert(same_call(&Functions::throttle_reasons, nvmlDeviceGetCurrentClocksThrottleReasons));
static_assert(same_call(&Functions::temperature, nvmlDeviceGetTemperature));
static_assert(same_call(&Functions::power, nvmlDeviceGetPowerUsage));
static_assert(same_call(&Functions::power_limit, nvmlDeviceGetEnforcedPowerLimit));
static_assert(same_call(&Functions::persistence, nvmlDeviceGetPersistenceMode));
static_assert(same_call(&Functions::compute, nvmlDeviceGetCudaComputeCapability));
static_assert(same_call(&Functions::mig, nvmlDeviceGetMigMode));
static_assert(same_call(&Functions::processes, nvmlDeviceGetComputeRunningProcesses_v3));
static_assert(same_call(&Functions::pcie_generation, nvmlDeviceGetCurrPcieLinkGeneration));
static_assert(same_call(&Functions::pcie_width, nvmlDeviceGetCurrPcieLinkWidth));
static_assert(same_call(&Functions::pcie_generation_most, nvmlDeviceGetMaxPcieLinkGeneration));
static_assert(same_call(&Functions::pcie_width_most, nvmlDeviceGetMaxPcieLinkWidth));
static_assert(same_call(&Functions::link_state, nvmlDeviceGetNvLinkState));
static_assert(same_call(&Functions::link_version, nvmlDeviceGetNvLinkVersion));
static_assert(same_call(&Functions::link_remote_type, nvmlDeviceGetNvLinkRemoteDeviceType));
static_assert(same_call(&Functions::link_remote, nvmlDeviceGetNvLinkRemotePciInfo_v2));
static_assert(same_call(&Functions::fields, nvmlDeviceGetFieldValues));
static_assert(same_call(&Functions::common_ancestor, nvmlDeviceGetTopologyCommonAncestor));
static_assert(same_call(&Functions::peer, nvmlDeviceGetP2PStatus));
static_assert(same_call(&Functions::fabric, nvmlDeviceGetGpuFabricInfo));
static_assert(same_call(&Functions::fabric_v, nvmlDeviceGetGpuFabricInfoV));

// What must not pass for the same.
static_assert(!SameCall<AskCount, decltype(&nvmlDeviceGetName)>::value);
static_assert(!SameCall<AskCount, decltype(&nvmlDeviceGetCurrentClocksEventReasons)>::value);
static_assert(!SameCall<AskCount, decltype(&nvmlDeviceGetMemoryInfo)>::value);
static_assert(!SameCall<AskLink, decltype(&nvmlDeviceGetNvLinkRemotePciInfo_v2)>::value);
static_assert(!SameCall<AskSet, decltype(&nvmlDeviceGetCpuAffinity)>::value);

}  // namespace

TEST_CASE("NVML declared: each pointer is visited by one name, which the library has") {
  Functions functions;
  std::set<std::string> names;
  std::set<const void*> places;
  visit_functions(functions, [&](const char* name, auto& function) {
    CHECK(function == nullptr);
    names.insert(name);
    places.insert(&function);
  });
  CHECK(names.size() == places.size());
  CHECK(places.size() == sizeof(Functions) / sizeof(void*));
  for (const std::string& name : names) {
    INFO(name);
    const bool listed = std::find(std::begin(emulation::kNvmlFunctions), std::end(emulation::kNvmlFunctions), name) !=
                        std::end(emulation::kNvmlFunctions);
    CHECK((listed || name == "nvmlShutdown" || name == "nvmlErrorString"));
  }
}

TEST_CASE("NVML declared: words for clocks are NVML's bits") {
  const std::map<std::string_view, unsigned long long> bits = {
      {"gpu-idle", nvmlClocksEventReasonGpuIdle},
      {"applications-clocks-setting", nvmlClocksEventReasonApplicationsClocksSetting},
      {"sw-power-cap", nvmlClocksEventReasonSwPowerCap},
      {"hw-slowdown", nvmlClocksThrottleReasonHwSlowdown},
      {"sync-boost", nvmlClocksEventReasonSyncBoost},
      {"sw-thermal-slowdown", nvmlClocksEventReasonSwThermalSlowdown},
      {"hw-thermal-slowdown", nvmlClocksThrottleReasonHwThermalSlowdown},
      {"hw-power-brake-slowdown", nvmlClocksThrottleReasonHwPowerBrakeSlowdown},
      {"display-clock-setting", nvmlClocksEventReasonDisplayClockSetting}};
  CHECK(bits.size() == std::size(kClockReasons));
  for (const ClockReason& reason : kClockReasons) CHECK(bits.at(reason.word) == reason.bit);
}

}  // namespace shardscope::topology::nvml_api
