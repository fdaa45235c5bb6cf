// Which CUDA devices this process can use, or in one line why none. Makes no context on any device, so that each rank
// of a host may ask all of them; what a device has free is asked of the chosen one only (read_memory). Reads no
// environment: who calls passes CUDA_VISIBLE_DEVICES on.
#pragma once

#include <cuda_runtime.h>

#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/device_choice.hpp"
#include "kernels/cuda/device_facts.hpp"

namespace shardscope::cuda {

/// The oldest compute capability that the kernels run on: 8.0 has cp.async and mma.m16n8k16 for bf16.
inline constexpr int kOldestMajor = 8;

/// visible_devices: the value of CUDA_VISIBLE_DEVICES, if it is set. Throws nothing for what is wrong with devices.
DeviceProbe probe_devices(const std::optional<std::string>& visible_devices);

/// Those that can be used, as choose_devices wants them.
std::vector<VisibleDevice> usable_devices(const DeviceProbe& probe);

/// Why there is no device, from what the first call of the runtime gave (cudaSuccess: it counted none): what is wrong,
/// and what to do. versions: as in DeviceProbe.
std::string explain(cudaError_t error, int driver_version, int runtime_version,
                    const std::optional<std::string>& visible_devices);

/// "" if such a device can be used, or why not.
std::string refusal_of(const std::string& name, int compute_major, int compute_minor);

/// "13.0" of 13000.
std::string version_text(int version);

/// Of the current device, on which it makes a context (some hundred MB) if there is none. Throws SystemError.
DeviceMemory read_memory();

}  // namespace shardscope::cuda
