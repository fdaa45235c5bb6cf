#include "kernels/cuda/device_probe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "kernels/cuda/check.hpp"

namespace shardscope::cuda {
namespace {

// The oldest toolkit that this project builds with.
constexpr int kOldestToolkit = 12080;

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  bool known = false;
  for (size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    known = known || byte != 0;
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", byte);
  }
  return known ? text : "";
}

/// 0 where the driver does not tell.
int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, which, device) == cudaSuccess) return value;
  cudaGetLastError();  // nobody is to find it later
  return 0;
}

DeviceFacts read_device(int ordinal) {
  DeviceFacts facts{.ordinal = ordinal, .name = fmt::format("device {}", ordinal)};
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, ordinal); error != cudaSuccess) {
    cudaGetLastError();
    facts.refusal =
        fmt::format("device {}: CUDA error {} ({})", ordinal, static_cast<int>(error), cudaGetErrorName(error));
    if (const std::string_view advice = advice_for(error); !advice.empty()) {
      facts.refusal += fmt::format(", {}", advice);
    }
    return facts;
  }
  std::array<char, 32> bus_id{};
  if (cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), ordinal) == cudaSuccess) {
    facts.pci_bus_id = bus_id.data();
  } else {
    cudaGetLastError();
  }
  facts.name = properties.name;
  facts.uuid = uuid_text(properties.uuid);
  facts.compute_major = properties.major;
  facts.compute_minor = properties.minor;
  facts.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  facts.multiprocessors = properties.multiProcessorCount;
  facts.l2_bytes = properties.l2CacheSize;
  facts.memory_bus_bits = properties.memoryBusWidth;
  // CUDA 13 has no clocks among the properties.
  facts.clock_khz = attribute(cudaDevAttrClockRate, ordinal);
  facts.memory_clock_khz = attribute(cudaDevAttrMemoryClockRate, ordinal);
  facts.refusal = refusal_of(facts.name, facts.compute_major, facts.compute_minor);
  return facts;
}

/// With what an older toolkit could help, "" if none can: toolkits run on all drivers of their major version.
std::string older_toolkit(int driver_version) {
  if (driver_version / 1000 < kOldestToolkit / 1000) return "";
  return fmt::format(", or build with toolkit {}", version_text(std::max(driver_version, kOldestToolkit)));
}

std::string explain_none(const std::optional<std::string>& visible_devices) {
  if (!visible_devices) {
    return "no CUDA device is visible, what to do: see nvidia-smi -L; a container needs docker --gpus all or apptainer "
           "--nv, a Slurm job --gpus-per-task or --gres=gpu";
  }
  if (visible_devices->empty()) {
    return "CUDA_VISIBLE_DEVICES is set and empty, which hides all devices, what to do: unset it, or let it name some";
  }
  return fmt::format(
      "CUDA_VISIBLE_DEVICES={} hides all devices, what to do: unset it, or let it name devices that nvidia-smi -L "
      "lists",
      *visible_devices);
}

}  // namespace

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string refusal_of(const std::string& name, int compute_major, int compute_minor) {
  if (compute_major >= kOldestMajor) return "";
  return fmt::format("{} (sm_{}{}) is too old: compute capability {}.0 (A100) or later is needed", name, compute_major,
                     compute_minor, kOldestMajor);
}

std::string explain(cudaError_t error, int driver_version, int runtime_version,
                    const std::optional<std::string>& visible_devices) {
  // Without a driver the runtime says "insufficient driver", too.
  if (driver_version == 0) {
    return "no NVIDIA driver, what to do: install it (nvidia-smi then works), or in a container pass it through with "
           "docker --gpus all or apptainer --nv";
  }
  if (error == cudaErrorInsufficientDriver) {
    return fmt::format("the NVIDIA driver supports CUDA {}, this build has {}, what to do: update the driver{}",
                       version_text(driver_version), version_text(runtime_version), older_toolkit(driver_version));
  }
  const bool none = error == cudaSuccess || error == cudaErrorNoDevice || error == cudaErrorInvalidDevice;
  if (none) return explain_none(visible_devices);
  std::string text =
      fmt::format("CUDA error {} ({}): no device can be used", static_cast<int>(error), cudaGetErrorName(error));
  if (const std::string_view advice = advice_for(error); !advice.empty()) {
    text += fmt::format(", what to do: {}", advice);
  }
  return text;
}

DeviceProbe probe_devices(const std::optional<std::string>& visible_devices) {
  DeviceProbe probe;
  // Both leave their output alone when they fail.
  if (cudaDriverGetVersion(&probe.driver_version) != cudaSuccess) cudaGetLastError();
  if (cudaRuntimeGetVersion(&probe.runtime_version) != cudaSuccess) cudaGetLastError();
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) cudaGetLastError();
  if (error != cudaSuccess || count == 0) {
    probe.why_none = explain(error, probe.driver_version, probe.runtime_version, visible_devices);
    return probe;
  }
  for (int ordinal = 0; ordinal < count; ++ordinal) probe.devices.push_back(read_device(ordinal));
  const bool any = std::any_of(probe.devices.begin(), probe.devices.end(),
                               [](const DeviceFacts& device) { return device.refusal.empty(); });
  if (any) return probe;
  std::vector<std::string> refusals;
  for (const DeviceFacts& device : probe.devices) {
    // Eight of the same kind are worth one mention.
    if (std::find(refusals.begin(), refusals.end(), device.refusal) == refusals.end()) {
      refusals.push_back(device.refusal);
    }
  }
  probe.why_none = fmt::format("no device can be used: {}", fmt::join(refusals, "; "));
  return probe;
}

std::vector<VisibleDevice> usable_devices(const DeviceProbe& probe) {
  std::vector<VisibleDevice> usable;
  for (const DeviceFacts& device : probe.devices) {
    if (device.refusal.empty()) usable.push_back({device.ordinal, device.uuid, device.pci_bus_id});
  }
  return usable;
}

DeviceMemory read_memory() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  return {static_cast<int64_t>(free_bytes), static_cast<int64_t>(total_bytes)};
}

}  // namespace shardscope::cuda
