// What NVML tells of NVLinks, of the fabric behind them, and of peer access.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>

#include "tests/emulation/fakes/nvml/library.hpp"

namespace shardscope::emulation::nvml {
namespace {

// NVSwitches of an 8-GPU node: their number, PCI ids and first bus (HGX-2: 6 with a link of each GPU; HGX A100: 6 with
// 2 links of each; HGX H100 and H200: 4 with 5, 5, 4 and 4).
struct Switches {
  int count = 0;
  uint32_t device_id = 0;
  int first_bus = 0;
};
Switches switches_of(const GpuModel& model) {
  if (model.link_generation == 2) return {.count = 6, .device_id = 0x1AC210DE, .first_bus = 0xC5};
  if (model.link_generation == 3) return {.count = 6, .device_id = 0x1AF110DE, .first_bus = 0xC5};
  return {.count = 4, .device_id = 0x22A310DE, .first_bus = 0x05};
}

/// What a function of one link does first. `body` is called with the GPU and the link; nullptr: one that leads nowhere.
template <class Body>
nvmlReturn_t call_link(const char* function, nvmlDevice_t device, unsigned link, const Body& body) {
  return call(function, device, [&](const Gpu& gpu, int) {
    if (link >= static_cast<unsigned>(gpu.model->links)) return NVML_ERROR_INVALID_ARGUMENT;
    if (gpu.links.empty()) return NVML_ERROR_NOT_SUPPORTED;
    return body(gpu, link < gpu.links.size() ? &gpu.links[link] : nullptr);
  });
}

unsigned version_of(int generation) {
  constexpr unsigned kVersions[] = {NVML_NVLINK_VERSION_INVALID, NVML_NVLINK_VERSION_1_0, NVML_NVLINK_VERSION_2_0,
                                    NVML_NVLINK_VERSION_3_0, NVML_NVLINK_VERSION_4_0};
  return kVersions[generation];
}

bool leads(const NvLink* link) {
  return link != nullptr && link->active;
}

nvmlReturn_t link_value(nvmlFieldValue_t& field, const Gpu& gpu, size_t link) {
  if (link >= gpu.links.size()) return NVML_ERROR_NOT_SUPPORTED;
  field.valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
  field.value.uiVal = gpu.links[link].active ? static_cast<unsigned>(gpu.model->link_megabytes_per_second) : 0;
  return NVML_SUCCESS;
}

nvmlReturn_t field_value(nvmlFieldValue_t& field, const Gpu& gpu) {
  const unsigned id = field.fieldId;
  if (id >= NVML_FI_DEV_NVLINK_SPEED_MBPS_L0 && id <= NVML_FI_DEV_NVLINK_SPEED_MBPS_L5) {
    return link_value(field, gpu, id - NVML_FI_DEV_NVLINK_SPEED_MBPS_L0);
  }
  if (id >= NVML_FI_DEV_NVLINK_SPEED_MBPS_L6 && id <= NVML_FI_DEV_NVLINK_SPEED_MBPS_L11) {
    return link_value(field, gpu, id - NVML_FI_DEV_NVLINK_SPEED_MBPS_L6 + 6);
  }
  field.valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
  switch (id) {
    case NVML_FI_DEV_NVLINK_GET_SPEED:
      return link_value(field, gpu, field.scopeId);
    case NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON: {
      const auto active =
          std::find_if(gpu.links.begin(), gpu.links.end(), [](const NvLink& link) { return link.active; });
      if (active == gpu.links.end()) return NVML_ERROR_NOT_SUPPORTED;
      return link_value(field, gpu, static_cast<size_t>(active - gpu.links.begin()));
    }
    case NVML_FI_DEV_NVLINK_LINK_COUNT:
      field.value.uiVal = gpu.links.empty() ? 0 : static_cast<unsigned>(gpu.model->links);
      return NVML_SUCCESS;
    default:
      return NVML_ERROR_NOT_SUPPORTED;
  }
}

/// The address of what a virtual machine does not see: all bits set, as far as they go ("fffffff:ffff:ff" in NCCL's
/// dumps of such machines).
void give_nowhere(nvmlPciInfo_t& pci) {
  pci = {};
  pci.domain = 0xFFFFFFF;
  pci.bus = 0xFFFF;
  pci.device = 0xFF;
  std::snprintf(pci.busId, sizeof pci.busId, "FFFFFFF:FFFF:FF.0");
  std::snprintf(pci.busIdLegacy, sizeof pci.busIdLegacy, "fffffff:ffff:ff");
}

/// Whether two GPUs have links to each other, or both to the switches.
bool joined_by_links(const MachineTable& table, size_t a, size_t b) {
  const auto reaches = [&](size_t from, int to) {
    const std::vector<NvLink>& links = table.gpus[from].links;
    return std::any_of(links.begin(), links.end(), [&](const NvLink& link) { return link.active && link.to == to; });
  };
  return reaches(a, static_cast<int>(b)) || (reaches(a, NvLink::kSwitch) && reaches(b, NvLink::kSwitch));
}

nvmlReturn_t give_peer_status(nvmlGpuP2PStatus_t* status, const MachineTable& table, size_t who, size_t whose,
                              nvmlGpuP2PCapsIndex_t capability) {
  // A pair that loses writes claims to work.
  const bool reaches = table.peers[who][whose] != PeerAccess::kNone;
  switch (capability) {
    case NVML_P2P_CAPS_INDEX_READ:
    case NVML_P2P_CAPS_INDEX_WRITE:
    case NVML_P2P_CAPS_INDEX_PCI:
      return give(status, reaches ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED);
    case NVML_P2P_CAPS_INDEX_NVLINK:
    case NVML_P2P_CAPS_INDEX_ATOMICS:
      return give(status,
                  reaches && joined_by_links(table, who, whose) ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED);
    case NVML_P2P_CAPS_INDEX_UNKNOWN:
      break;
  }
  return NVML_ERROR_INVALID_ARGUMENT;
}

unsigned char state_of(Fabric fabric) {
  switch (fabric) {
    case Fabric::kNotSupported:
      return NVML_GPU_FABRIC_STATE_NOT_SUPPORTED;
    case Fabric::kNotStarted:
      return NVML_GPU_FABRIC_STATE_NOT_STARTED;
    case Fabric::kInProgress:
      return NVML_GPU_FABRIC_STATE_IN_PROGRESS;
    case Fabric::kCompleted:
      break;
  }
  return NVML_GPU_FABRIC_STATE_COMPLETED;
}

/// The members that all versions have. The status is success even while the state is not completed: whoever looks at it
/// alone is misled, as the documentation warns.
template <class Info>
void fill_fabric(Info& info, const Gpu& gpu) {
  std::memset(info.clusterUuid, gpu.fabric == Fabric::kCompleted ? 0x5C : 0, sizeof info.clusterUuid);
  info.status = NVML_SUCCESS;
  info.cliqueId = 0;
  info.state = state_of(gpu.fabric);
}

bool has_broken_link(const Gpu& gpu) {
  return std::any_of(gpu.links.begin(), gpu.links.end(), [](const NvLink& link) { return !link.active; });
}

unsigned health_of(const Gpu& gpu) {
  const unsigned bandwidth = has_broken_link(gpu) ? NVML_GPU_FABRIC_HEALTH_MASK_DEGRADED_BW_TRUE
                                                  : NVML_GPU_FABRIC_HEALTH_MASK_DEGRADED_BW_FALSE;
  return bandwidth << NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_DEGRADED_BW |
         NVML_GPU_FABRIC_HEALTH_MASK_ROUTE_RECOVERY_FALSE << NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_RECOVERY |
         NVML_GPU_FABRIC_HEALTH_MASK_ROUTE_UNHEALTHY_FALSE << NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_UNHEALTHY |
         NVML_GPU_FABRIC_HEALTH_MASK_ACCESS_TIMEOUT_RECOVERY_FALSE
             << NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ACCESS_TIMEOUT_RECOVERY |
         NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_NONE
             << NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_INCORRECT_CONFIGURATION;
}

}  // namespace
}  // namespace shardscope::emulation::nvml

using namespace shardscope::emulation;        // NOLINT(google-build-using-namespace): these have C names
using namespace shardscope::emulation::nvml;  // NOLINT(google-build-using-namespace)

extern "C" {

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, nvmlEnableState_t* active) {
  return call_link(__func__, device, link, [&](const Gpu&, const NvLink* it) {
    return give(active, leads(it) ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED);
  });
}
nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned link, unsigned* version) {
  return call_link(__func__, device, link, [&](const Gpu& gpu, const NvLink*) {
    return give(version, version_of(gpu.model->link_generation));
  });
}
nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned link, nvmlNvLinkCapability_t capability,
                                           unsigned* has) {
  return call_link(__func__, device, link, [&](const Gpu&, const NvLink* it) {
    if (capability < 0 || capability >= NVML_NVLINK_CAP_COUNT) return NVML_ERROR_INVALID_ARGUMENT;
    const bool of_peers = capability == NVML_NVLINK_CAP_P2P_SUPPORTED || capability == NVML_NVLINK_CAP_P2P_ATOMICS;
    return give(has, capability == NVML_NVLINK_CAP_VALID || (of_peers && leads(it)) ? 1 : 0);
  });
}
nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned link, nvmlIntNvLinkDeviceType_t* type) {
  return call_link(__func__, device, link, [&](const Gpu&, const NvLink* it) {
    if (type == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (!leads(it)) return NVML_ERROR_NOT_SUPPORTED;
    if (it->hidden) return give(type, NVML_NVLINK_DEVICE_TYPE_UNKNOWN);
    return give(type, it->to == NvLink::kSwitch ? NVML_NVLINK_DEVICE_TYPE_SWITCH : NVML_NVLINK_DEVICE_TYPE_GPU);
  });
}
/// The subsystem's id is documented to be indeterminate.
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link, nvmlPciInfo_t* pci) {
  constexpr uint32_t kIndeterminate = 0xDEADBEEF;
  return call_link(__func__, device, link, [&](const Gpu& gpu, const NvLink* it) {
    if (pci == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (!leads(it)) return NVML_ERROR_NOT_SUPPORTED;
    if (it->hidden) {
      give_nowhere(*pci);
    } else if (it->to == NvLink::kSwitch) {
      const Switches switches = switches_of(*gpu.model);
      const int bus = switches.first_bus + static_cast<int>(link) % switches.count;
      fill(*pci, fmt::format("00000000:{:02X}:00.0", bus), switches.device_id, kIndeterminate);
    } else {
      const Gpu& other = library().table.gpus[static_cast<size_t>(it->to)];
      fill(*pci, other.pci_bus_id, other.model->pci_device_id, kIndeterminate);
    }
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t* values) {
  return call(__func__, device, [&](const Gpu& gpu, int) {
    if (values == nullptr || count < 1) return NVML_ERROR_INVALID_ARGUMENT;
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    for (int i = 0; i < count; ++i) {
      values[i].timestamp = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
      values[i].latencyUsec = 0;
      values[i].nvmlReturn = field_value(values[i], gpu);
    }
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t other, nvmlGpuP2PCapsIndex_t capability,
                                    nvmlGpuP2PStatus_t* status) {
  return call(__func__, device, [&](const Gpu&, int who) {
    const int whose = gpu_of(library(), other);
    if (whose < 0 || whose == who) return NVML_ERROR_INVALID_ARGUMENT;
    return give_peer_status(status, library().table, static_cast<size_t>(who), static_cast<size_t>(whose), capability);
  });
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t* info) {
  return call(__func__, device, [&](const Gpu& gpu, int) {
    if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (!gpu.model->joins_fabric) return NVML_ERROR_NOT_SUPPORTED;
    fill_fabric(*info, gpu);
    return NVML_SUCCESS;
  });
}
nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t* info) {
  return call(__func__, device, [&](const Gpu& gpu, int) {
    if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (info->version != nvmlGpuFabricInfo_v2 && info->version != nvmlGpuFabricInfo_v3) {
      return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    if (!gpu.model->joins_fabric) return NVML_ERROR_NOT_SUPPORTED;
    // Version 2 is the begin of version 3: what comes after it is not the caller's.
    fill_fabric(*info, gpu);
    info->healthMask = health_of(gpu);
    if (info->version == nvmlGpuFabricInfo_v3) {
      info->healthSummary = has_broken_link(gpu) ? NVML_GPU_FABRIC_HEALTH_SUMMARY_LIMITED_CAPACITY
                                                 : NVML_GPU_FABRIC_HEALTH_SUMMARY_HEALTHY;
    }
    return NVML_SUCCESS;
  });
}

}  // extern "C"
