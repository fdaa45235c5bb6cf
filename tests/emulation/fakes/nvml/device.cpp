// What NVML tells of one GPU, and of two on PCIe.
#include <cstring>

#include <algorithm>

#include "tests/emulation/fakes/nvml/library.hpp"

namespace shardscope::emulation::nvml {
namespace {

constexpr int kKhzPerMhz = 1000;

struct MemoryUse {
  uint64_t total = 0, reserved = 0, used = 0;
};

/// Reserved is what the driver keeps for itself: what CUDA does not see.
MemoryUse memory_use(const Gpu& gpu) {
  MemoryUse use{.total = static_cast<uint64_t>(gpu.model->frame_buffer_bytes),
                .reserved = static_cast<uint64_t>(gpu.model->frame_buffer_bytes - gpu.model->memory_bytes)};
  for (const GpuProcess& process : gpu.processes) use.used += static_cast<uint64_t>(process.used_mib) << 20;
  use.used = std::min(use.used, use.total - use.reserved);
  return use;
}

nvmlReturn_t give_clock(unsigned* clock, nvmlClockType_t type, int clock_khz, int memory_clock_khz) {
  switch (type) {
    case NVML_CLOCK_GRAPHICS:
    case NVML_CLOCK_SM:
      return give(clock, clock_khz / kKhzPerMhz);
    case NVML_CLOCK_MEM:
      return give(clock, memory_clock_khz / kKhzPerMhz);
    case NVML_CLOCK_VIDEO:  // no table has it
      return clock == nullptr ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
    case NVML_CLOCK_COUNT:
      break;
  }
  return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlGpuTopologyLevel_t level_of(Distance distance) {
  switch (distance) {
    case Distance::kSelf:
      return NVML_TOPOLOGY_INTERNAL;
    case Distance::kPix:
      return NVML_TOPOLOGY_SINGLE;
    case Distance::kPxb:
      return NVML_TOPOLOGY_MULTIPLE;
    case Distance::kPhb:
      return NVML_TOPOLOGY_HOSTBRIDGE;
    case Distance::kNode:
      return NVML_TOPOLOGY_NODE;
    case Distance::kSys:
      break;
  }
  return NVML_TOPOLOGY_SYSTEM;
}

}  // namespace
}  // namespace shardscope::emulation::nvml

using namespace shardscope::emulation;        // NOLINT(google-build-using-namespace): these have C names
using namespace shardscope::emulation::nvml;  // NOLINT(google-build-using-namespace)

extern "C" {

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned* index) {
  return call(__func__, device, [&](const Gpu&, int gpu) { return give(index, gpu); });
}
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned length) {
  return call(__func__, device, [&](const Gpu& gpu, int) { return give_text(name, length, gpu.model->name); });
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned length) {
  return call(__func__, device, [&](const Gpu& gpu, int) { return give_text(uuid, length, gpu.uuid); });
}
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  return call(__func__, device, [&](const Gpu& gpu, int) {
    if (pci == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    fill(*pci, gpu.pci_bus_id, gpu.model->pci_device_id, gpu.model->pci_subsystem_id);
    return NVML_SUCCESS;
  });
}
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  return call(__func__, device, [&](const Gpu& gpu, int) {
    const MemoryUse use = memory_use(gpu);
    const uint64_t used = use.reserved + use.used;  // version 1 does not tell them apart
    return give(memory, nvmlMemory_t{.total = use.total, .free = use.total - used, .used = used});
  });
}
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  return call(__func__, device, [&](const Gpu& gpu, int) {
    if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (memory->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    const MemoryUse use = memory_use(gpu);
    *memory = {.version = nvmlMemory_v2,
               .total = use.total,
               .reserved = use.reserved,
               .free = use.total - use.reserved - use.used,
               .used = use.used};
    return NVML_SUCCESS;
  });
}
nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned* bits) {
  return call(__func__, device, [&](const Gpu& gpu, int) { return give(bits, gpu.model->memory_bus_bits); });
}
/// Where the GPU's node is not known, there is no affinity.
nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned size, unsigned long* nodes,
                                         nvmlAffinityScope_t scope) {
  return call(__func__, device, [&](const Gpu& gpu, int) {
    constexpr int kBits = 8 * sizeof(unsigned long);
    if (nodes == nullptr || size == 0) return NVML_ERROR_INVALID_ARGUMENT;
    if (scope != NVML_AFFINITY_SCOPE_NODE && scope != NVML_AFFINITY_SCOPE_SOCKET) return NVML_ERROR_INVALID_ARGUMENT;
    if (gpu.numa_node < 0) return NVML_ERROR_NOT_SUPPORTED;
    std::memset(nodes, 0, size * sizeof(unsigned long));
    const auto word = static_cast<unsigned>(gpu.numa_node / kBits);
    if (word < size) nodes[word] = 1ul << (gpu.numa_node % kBits);
    return NVML_SUCCESS;
  });
}
nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned size, unsigned long* cpus,
                                                 nvmlAffinityScope_t scope) {
  return call(__func__, device, [&](const Gpu& gpu, int) {
    constexpr int kBits = 8 * sizeof(unsigned long);
    if (cpus == nullptr || size == 0) return NVML_ERROR_INVALID_ARGUMENT;
    if (scope != NVML_AFFINITY_SCOPE_NODE && scope != NVML_AFFINITY_SCOPE_SOCKET) return NVML_ERROR_INVALID_ARGUMENT;
    if (gpu.cpu_affinity.empty()) return NVML_ERROR_NOT_SUPPORTED;
    std::memset(cpus, 0, size * sizeof(unsigned long));
    for (const int cpu : cpus_of(gpu.cpu_affinity)) {
      const auto word = static_cast<unsigned>(cpu / kBits);
      if (word < size) cpus[word] |= 1ul << (cpu % kBits);
    }
    return NVML_SUCCESS;
  });
}
/// Of machines whose GPUs are NUMA nodes themselves, which none of ours is.
nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned* node) {
  return call(__func__, device, [&](const Gpu&, int) {
    return node == nullptr ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
  });
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned* clock) {
  return call(__func__, device,
              [&](const Gpu& gpu, int) { return give_clock(clock, type, gpu.clock_khz, gpu.memory_clock_khz); });
}
nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned* clock) {
  return call(__func__, device, [&](const Gpu& gpu, int) {
    return give_clock(clock, type, gpu.model->clock_khz, gpu.model->memory_clock_khz);
  });
}
nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long* reasons) {
  return call(__func__, device, [&](const Gpu& gpu, int) { return give(reasons, gpu.clock_reasons); });
}
/// The same under the name that it had before.
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long* reasons) {
  return call(__func__, device, [&](const Gpu& gpu, int) { return give(reasons, gpu.clock_reasons); });
}
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned* celsius) {
  return call(__func__, device, [&](const Gpu& gpu, int) {
    if (sensor != NVML_TEMPERATURE_GPU) return NVML_ERROR_INVALID_ARGUMENT;
    return give(celsius, gpu.temperature_celsius);
  });
}
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned* milliwatts) {
  return call(__func__, device, [&](const Gpu& gpu, int) { return give(milliwatts, gpu.power_milliwatts); });
}
nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned* milliwatts) {
  return call(__func__, device, [&](const Gpu& gpu, int) { return give(milliwatts, gpu.power_limit_milliwatts); });
}
nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
  return call(__func__, device, [&](const Gpu& gpu, int) {
    return give(mode, gpu.persistence ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED);
  });
}
nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major, int* minor) {
  return call(__func__, device, [&](const Gpu& gpu, int) {
    if (major == nullptr || minor == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *major = gpu.model->compute_major;
    *minor = gpu.model->compute_minor;
    return NVML_SUCCESS;
  });
}
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned* current, unsigned* pending) {
  return call(__func__, device, [&](const Gpu& gpu, int) {
    if (current == nullptr || pending == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *current = *pending = gpu.mig ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
    return NVML_SUCCESS;
  });
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned* count, nvmlProcessInfo_t* infos) {
  return call(__func__, device, [&](const Gpu& gpu, int) {
    constexpr unsigned kNoInstance = 0xFFFF'FFFF;
    if (count == nullptr || (*count > 0 && infos == nullptr)) return NVML_ERROR_INVALID_ARGUMENT;
    const auto running = static_cast<unsigned>(gpu.processes.size());
    const bool fits = *count >= running;
    *count = running;
    if (!fits) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < running; ++i) {
      infos[i] = {.pid = static_cast<unsigned>(gpu.processes[i].pid),
                  .usedGpuMemory = static_cast<uint64_t>(gpu.processes[i].used_mib) << 20,
                  .gpuInstanceId = kNoInstance,
                  .computeInstanceId = kNoInstance};
    }
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned* generation) {
  return call(__func__, device, [&](const Gpu& gpu, int) { return give(generation, gpu.pcie_generation); });
}
nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned* width) {
  return call(__func__, device, [&](const Gpu& gpu, int) { return give(width, gpu.pcie_width); });
}
nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned* generation) {
  return call(__func__, device, [&](const Gpu& gpu, int) { return give(generation, gpu.model->pcie_generation); });
}
nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned* width) {
  return call(__func__, device, [&](const Gpu&, int) { return give(width, 16); });
}
nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t other,
                                                 nvmlGpuTopologyLevel_t* level) {
  return call(__func__, device, [&](const Gpu&, int gpu) {
    const int second = gpu_of(library(), other);
    if (second < 0) return NVML_ERROR_INVALID_ARGUMENT;
    return give(level, level_of(library().table.distances[static_cast<size_t>(gpu)][static_cast<size_t>(second)]));
  });
}

}  // extern "C"
