// Devices of the stand-in runtime: which there are, what they can, and who reaches whose memory.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>

#include "tests/emulation/fakes/cudart/runtime.hpp"

namespace shardscope::emulation {
namespace {

// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": the same from 8.0 on.
constexpr int kMostThreadsPerBlock = 1024;
constexpr int kSharedBytesWithoutAsking = 48 << 10;
constexpr int kRegistersPerMultiprocessor = 64 << 10;
constexpr int kSharedBytesReservedPerBlock = 1 << 10;
constexpr int kWarpThreads = 32;

bool is_device(int device) {
  return device >= 0 && device < Machine::get().devices();
}

cudaError_t no_device(const Call& call, int device) {
  return refused(call, cudaErrorInvalidDevice,
                 fmt::format("device {}, where there are {}", device, Machine::get().devices()));
}

/// "00000000:1B:00.0" as the runtime writes it: "0000:1B:00.0".
std::string short_bus_id(const std::string& bus_id) {
  return bus_id.substr(bus_id.find(':') - 4);
}

int hexadecimal(std::string_view digits) {
  int value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  return value;
}

void set_uuid(cudaUUID_t& uuid, std::string_view text) {
  size_t digits = 0;
  for (const char c : text.substr(4)) {  // after "GPU-"
    if (c == '-' || digits / 2 >= sizeof(uuid.bytes)) continue;
    char& byte = uuid.bytes[digits / 2];
    byte = static_cast<char>((static_cast<unsigned char>(byte) << 4) | hexadecimal(std::string_view(&c, 1)));
    ++digits;
  }
}

cudaError_t check_peers(const Call& call, int device, int peer) {
  if (!is_device(device)) return no_device(call, device);
  if (!is_device(peer)) return no_device(call, peer);
  return cudaSuccess;
}

}  // namespace
}  // namespace shardscope::emulation

using namespace shardscope::emulation;  // NOLINT(google-build-using-namespace): these have C names

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  const Call call("cudaGetDeviceCount");
  if (call.fails()) return failure(call, cudaErrorNoDevice);
  if (Machine::get().devices() == 0) return refused(call, cudaErrorNoDevice, "no device is visible");
  return give(call, count, Machine::get().devices());
}
cudaError_t cudaSetDevice(int device) {
  const Call call("cudaSetDevice");
  if (call.fails()) return failure(call, cudaErrorDevicesUnavailable);
  if (!is_device(device)) return no_device(call, device);
  set_current_device(device);
  return answer(cudaSuccess);
}
cudaError_t cudaGetDevice(int* device) {
  const Call call("cudaGetDevice");
  if (call.fails()) return failure(call);
  return give(call, device, current_device());
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  const Call call("cudaDeviceGetAttribute");
  if (call.fails()) return failure(call);
  if (!is_device(device)) return no_device(call, device);
  const Machine& machine = Machine::get();
  const GpuModel& model = *machine.gpu(device).model;
  switch (attribute) {  // NOLINT: what is not here is not supported, by default
    case cudaDevAttrMultiProcessorCount:
      return give(call, value, machine.multiprocessors(device));
    case cudaDevAttrComputeCapabilityMajor:
      return give(call, value, model.compute_major);
    case cudaDevAttrComputeCapabilityMinor:
      return give(call, value, model.compute_minor);
    case cudaDevAttrWarpSize:
      return give(call, value, kWarpThreads);
    case cudaDevAttrMaxThreadsPerBlock:
      return give(call, value, kMostThreadsPerBlock);
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return give(call, value, model.threads_per_multiprocessor);
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      return give(call, value, model.blocks_per_multiprocessor);
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return give(call, value, kSharedBytesWithoutAsking);
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return give(call, value, static_cast<int>(model.most_shared_bytes_per_block));
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return give(call, value, static_cast<int>(model.shared_bytes_per_multiprocessor));
    case cudaDevAttrReservedSharedMemoryPerBlock:
      return give(call, value, kSharedBytesReservedPerBlock);
    case cudaDevAttrMaxRegistersPerMultiprocessor:
    case cudaDevAttrMaxRegistersPerBlock:
      return give(call, value, kRegistersPerMultiprocessor);
    case cudaDevAttrL2CacheSize:
      return give(call, value, static_cast<int>(model.l2_bytes));
    case cudaDevAttrGlobalMemoryBusWidth:
      return give(call, value, model.memory_bus_bits);
    case cudaDevAttrMemoryClockRate:
      return give(call, value, model.memory_clock_khz);
    case cudaDevAttrClockRate:
      return give(call, value, model.clock_khz);
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
      return give(call, value, 1);
    case cudaDevAttrIntegrated:
      return give(call, value, 0);
    case cudaDevAttrComputeMode:
      return give(call, value, static_cast<int>(cudaComputeModeDefault));
    default:
      return refused(call, cudaErrorNotSupported,
                     fmt::format("attribute {} is not offered here", static_cast<int>(attribute)));
  }
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const Call call("cudaGetDeviceProperties");
  if (call.fails()) return failure(call);
  if (properties == nullptr) return refused(call, cudaErrorInvalidValue, "nowhere to put the answer");
  if (!is_device(device)) return no_device(call, device);
  const Machine& machine = Machine::get();
  const Gpu& gpu = machine.gpu(device);
  const GpuModel& model = *gpu.model;
  *properties = {};
  model.name.copy(properties->name, sizeof(properties->name) - 1);
  set_uuid(properties->uuid, gpu.uuid);
  properties->totalGlobalMem = static_cast<size_t>(machine.memory_bytes(device));
  properties->sharedMemPerBlock = kSharedBytesWithoutAsking;
  properties->sharedMemPerBlockOptin = static_cast<size_t>(model.most_shared_bytes_per_block);
  properties->sharedMemPerMultiprocessor = static_cast<size_t>(model.shared_bytes_per_multiprocessor);
  properties->reservedSharedMemPerBlock = kSharedBytesReservedPerBlock;
  properties->regsPerBlock = properties->regsPerMultiprocessor = kRegistersPerMultiprocessor;
  properties->warpSize = kWarpThreads;
  properties->maxThreadsPerBlock = kMostThreadsPerBlock;
  properties->maxThreadsPerMultiProcessor = model.threads_per_multiprocessor;
  properties->maxBlocksPerMultiProcessor = model.blocks_per_multiprocessor;
  properties->major = model.compute_major;
  properties->minor = model.compute_minor;
  properties->multiProcessorCount = machine.multiprocessors(device);
  properties->l2CacheSize = static_cast<int>(model.l2_bytes);
  properties->memoryBusWidth = model.memory_bus_bits;
  properties->unifiedAddressing = properties->canMapHostMemory = properties->concurrentKernels = 1;
  properties->asyncEngineCount = 3;  // as on A100, H100 and H200
  const std::string bus_id = gpu.pci_bus_id;
  properties->pciDomainID = hexadecimal(std::string_view(bus_id).substr(0, 8));
  properties->pciBusID = hexadecimal(std::string_view(bus_id).substr(9, 2));
  properties->pciDeviceID = hexadecimal(std::string_view(bus_id).substr(12, 2));
  return answer(cudaSuccess);
}
cudaError_t cudaDeviceGetPCIBusId(char* bus_id, int bytes, int device) {
  const Call call("cudaDeviceGetPCIBusId");
  if (call.fails()) return failure(call);
  if (!is_device(device)) return no_device(call, device);
  const std::string text = short_bus_id(Machine::get().gpu(device).pci_bus_id);
  if (bus_id == nullptr || bytes <= static_cast<int>(text.size())) {
    return refused(call, cudaErrorInvalidValue, fmt::format("{} bytes for \"{}\" and its end", bytes, text));
  }
  std::memcpy(bus_id, text.c_str(), text.size() + 1);
  return answer(cudaSuccess);
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  const Call call("cudaDeviceCanAccessPeer");
  if (call.fails()) return failure(call);
  if (const cudaError_t error = check_peers(call, device, peer); error != cudaSuccess) return error;
  const bool does = device != peer && Machine::get().peer_access(device, gpu_of_device(peer)) != PeerAccess::kNone;
  return give(call, can, does ? 1 : 0);
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  const Call call("cudaDeviceEnablePeerAccess");
  if (call.fails()) return failure(call, cudaErrorPeerAccessUnsupported);
  if (flags != 0) return refused(call, cudaErrorInvalidValue, "the flags have to be 0");
  const int device = current_device();
  if (const cudaError_t error = check_peers(call, device, peer); error != cudaSuccess) return error;
  if (peer == device) return refused(call, cudaErrorInvalidDevice, "a device is no peer of its own");
  if (Machine::get().peer_access(device, gpu_of_device(peer)) == PeerAccess::kNone) {
    return refused(call, cudaErrorPeerAccessUnsupported,
                   fmt::format("device {} has no peer access to device {}", device, peer));
  }
  bool& enabled = Machine::get().peer_enabled[device][peer];
  if (enabled) return refused(call, cudaErrorPeerAccessAlreadyEnabled, "enabled before");
  enabled = true;
  return answer(cudaSuccess);
}

cudaError_t cudaDriverGetVersion(int* version) {
  const Call call("cudaDriverGetVersion");
  if (call.fails()) return failure(call);
  return give(call, version, Machine::get().table().cuda_driver_version);
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  const Call call("cudaRuntimeGetVersion");
  if (call.fails()) return failure(call);
  return give(call, version, CUDART_VERSION);
}

cudaError_t cudaDeviceSynchronize() {
  const Call call("cudaDeviceSynchronize");
  if (call.fails()) return failure(call);
  const int device = current_device();
  if (const std::shared_ptr<Capture> capture = handles().capture_of(device)) {
    return answer(invalidate(call, *capture, cudaErrorStreamCaptureUnsupported,
                             "a stream of the device is being captured; the capture is no longer valid"));
  }
  if (const cudaError_t error = outside_captures(call); error != cudaSuccess) return answer(error);
  if (failed()) return answer(cudaSuccess);
  drain(call, device);
  if (!failed()) executor().host_learns_all_of(device);
  return answer(cudaSuccess);
}

}  // extern "C"
