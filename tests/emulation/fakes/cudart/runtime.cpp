#include "tests/emulation/fakes/cudart/runtime.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tests/emulation/device/emulated_launch.hpp"
#include "tests/emulation/fakes/cudart/streams.hpp"

namespace shardscope::emulation {
namespace {

// Limits of compute capability 9.0 (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
constexpr unsigned kMostThreadsPerBlock = 1024;
constexpr int64_t kSharedBytesWithoutAsking = 48 << 10;
constexpr int64_t kMostSharedBytes = 227 << 10;

struct Runtime {
  Streams streams;
  int device = 0;
  cudaError_t sticky = cudaSuccess;
  cudaError_t last = cudaSuccess;
  /// How much dynamic shared memory kernels were allowed, where it is more than without asking.
  std::map<std::pair<int, const void*>, int64_t> allowed_shared_bytes;  // [device, kernel]
};

std::unique_ptr<Runtime>& instance() {
  static auto& runtime = *new std::unique_ptr<Runtime>(std::make_unique<Runtime>());
  return runtime;
}

Runtime& runtime() {
  return *instance();
}

/// Kernels by their address.
std::map<const void*, KernelEntry>& kernels() {
  static auto& known = *new std::map<const void*, KernelEntry>;
  return known;
}

cudaError_t error_of(Fault fault) {
  switch (fault) {
    case Fault::kOutOfBounds:
    case Fault::kUseAfterFree:
    case Fault::kHostMemory:
    case Fault::kPeerAccess:
      return cudaErrorIllegalAddress;
    case Fault::kMisaligned:
      return cudaErrorMisalignedAddress;
    case Fault::kNoProgress:
      return cudaErrorLaunchTimeout;
    case Fault::kForeignLocal:
    case Fault::kUninitialised:
    case Fault::kSharedRace:
    case Fault::kGlobalRace:
    case Fault::kDivergentBarrier:
    case Fault::kDivergentWarp:
    case Fault::kPendingCopy:
    case Fault::kTrap:
      return cudaErrorLaunchFailure;
  }
  return cudaErrorUnknown;
}

cudaError_t answer(cudaError_t error) {
  Runtime& it = runtime();
  if (it.sticky == cudaSuccess && Machine::get().stopped()) it.sticky = error_of(Machine::get().stopped_by());
  if (it.sticky != cudaSuccess) error = it.sticky;
  if (error != cudaSuccess) it.last = error;
  return error;
}

bool failed() {
  return answer(cudaSuccess) != cudaSuccess;
}

/// Gives `value` to the caller's variable.
template <class T>
cudaError_t give(T* variable, T value) {
  if (variable == nullptr) return answer(cudaErrorInvalidValue);
  *variable = value;
  return answer(cudaSuccess);
}

int devices() {
  return Machine::get().options().devices;
}

/// The allocation that holds the whole range, or nullptr.
Allocation* allocation_of(const void* address, int64_t bytes) {
  DeviceMemory& memory = Machine::get().memory();
  if (!memory.covers(address)) return nullptr;
  Allocation* const found = memory.find(address);
  if (found == nullptr || found->freed) return nullptr;
  return static_cast<const std::byte*>(address) + bytes <= found->begin + found->bytes ? found : nullptr;
}

/// True if the address may stand on that side of a copy.
bool fits_side(const void* address, int64_t bytes, bool device_side) {
  if (!Machine::get().memory().covers(address)) return !device_side;
  const Allocation* const allocation = allocation_of(address, bytes);
  return allocation != nullptr && (allocation->device == kPinned || device_side);
}

bool on_device(const void* address) {
  const DeviceMemory& memory = Machine::get().memory();
  return memory.covers(address) && memory.device_of(address) != kPinned;
}

/// With `stage`, the bytes are read now.
cudaError_t enqueue_transfer(Transfer transfer, cudaMemcpyKind kind, cudaStream_t stream, bool stage = false) {
  if (failed()) return answer(cudaSuccess);
  Stream* const queue = runtime().streams.find(stream, runtime().device);
  if (queue == nullptr) return answer(cudaErrorInvalidResourceHandle);
  if (transfer.bytes < 0 || transfer.target == nullptr) return answer(cudaErrorInvalidValue);
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind == cudaMemcpyHostToHost || kind == cudaMemcpyDefault) return answer(cudaErrorInvalidMemcpyDirection);
  if (!fits_side(transfer.target, transfer.bytes, to_device) ||
      (transfer.source != nullptr && !fits_side(transfer.source, transfer.bytes, from_device))) {
    return answer(cudaErrorInvalidValue);
  }
  if (stage) {
    transfer.staged.assign(transfer.source, transfer.source + transfer.bytes);
    transfer.source = transfer.staged.data();
  }
  runtime().streams.enqueue(*queue, {.transfer = std::move(transfer)});
  return answer(cudaSuccess);
}

cudaError_t allocate(void** address, int device, size_t bytes) {
  if (address == nullptr) return answer(cudaErrorInvalidValue);
  *address = nullptr;
  if (failed()) return answer(cudaSuccess);
  if (bytes == 0) return answer(cudaSuccess);
  const int64_t limit = device == kPinned ? Machine::get().options().device_memory_bytes * kMostDevices
                                          : Machine::get().options().device_memory_bytes;
  Allocation* const allocation = Machine::get().memory().allocate(device, static_cast<int64_t>(bytes), limit);
  if (allocation == nullptr) return answer(cudaErrorMemoryAllocation);
  *address = allocation->begin;
  // The host writes pinned memory without telling anybody.
  if (device == kPinned) allocation->written.set(0, allocation->bytes, true);
  return answer(cudaSuccess);
}

cudaError_t release(void* address, bool pinned) {
  if (failed()) return answer(cudaSuccess);
  if (address == nullptr) return answer(cudaSuccess);
  // As the real ones do: what was enqueued may still use it. That they wait is nothing to rely on.
  runtime().streams.drain();
  if (failed()) return answer(cudaSuccess);
  DeviceMemory& memory = Machine::get().memory();
  if (!memory.covers(address) || (memory.device_of(address) == kPinned) != pinned || !memory.free(address)) {
    return answer(cudaErrorInvalidValue);
  }
  return answer(cudaSuccess);
}

bool valid_shape(const dim3& grid, const dim3& block) {
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  return grid.x >= 1 && grid.y >= 1 && grid.z >= 1 && grid.x <= 0x7FFFFFFFu && grid.y <= 65535 && grid.z <= 65535 &&
         threads >= 1 && threads <= kMostThreadsPerBlock && block.z <= 64;
}

}  // namespace

void declare_kernel(const KernelEntry& entry) {
  kernels().try_emplace(entry.kernel, entry);
}

void forget_streams() {
  instance() = std::make_unique<Runtime>();
}

}  // namespace shardscope::emulation

// ---- the functions of the CUDA runtime ------------------------------------------------------------------------------

using namespace shardscope::emulation;  // NOLINT(google-build-using-namespace): these have C names

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  return give(count, devices());
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= devices()) return answer(cudaErrorInvalidDevice);
  runtime().device = device;
  return answer(cudaSuccess);
}
cudaError_t cudaGetDevice(int* device) {
  return give(device, runtime().device);
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device < 0 || device >= devices()) return answer(cudaErrorInvalidDevice);
  switch (attribute) {  // NOLINT: what is not here is not supported, by default
    case cudaDevAttrMultiProcessorCount:
      return give(value, Machine::get().options().multiprocessors);
    case cudaDevAttrComputeCapabilityMajor:
      return give(value, 9);
    case cudaDevAttrComputeCapabilityMinor:
      return give(value, 0);
    case cudaDevAttrWarpSize:
      return give(value, 32);
    case cudaDevAttrMaxThreadsPerBlock:
      return give(value, static_cast<int>(kMostThreadsPerBlock));
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return give(value, static_cast<int>(kSharedBytesWithoutAsking));
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return give(value, static_cast<int>(kMostSharedBytes));
    default:
      return answer(cudaErrorNotSupported);
  }
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (device < 0 || device >= devices() || peer < 0 || peer >= devices()) return answer(cudaErrorInvalidDevice);
  return give(can, device != peer ? 1 : 0);
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  if (flags != 0) return answer(cudaErrorInvalidValue);
  if (peer < 0 || peer >= devices() || peer == runtime().device) return answer(cudaErrorInvalidDevice);
  bool& enabled = Machine::get().peer_enabled[runtime().device][peer];
  if (enabled) return answer(cudaErrorPeerAccessAlreadyEnabled);
  enabled = true;
  return answer(cudaSuccess);
}
cudaError_t cudaDriverGetVersion(int* version) {
  return give(version, CUDART_VERSION);
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  return give(version, CUDART_VERSION);
}

cudaError_t cudaMalloc(void** address, size_t bytes) {
  return allocate(address, runtime().device, bytes);
}
cudaError_t cudaFree(void* address) {
  return release(address, false);
}
cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) {
  return allocate(address, kPinned, bytes);
}
cudaError_t cudaMallocHost(void** address, size_t bytes) {
  return allocate(address, kPinned, bytes);
}
cudaError_t cudaFreeHost(void* address) {
  return release(address, true);
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (bytes == 0) return answer(cudaSuccess);
  if (source == nullptr) return answer(cudaErrorInvalidValue);
  return enqueue_transfer({.name = "cudaMemcpy",
                           .target = static_cast<std::byte*>(target),
                           .source = static_cast<const std::byte*>(source),
                           .bytes = static_cast<int64_t>(bytes)},
                          kind, stream);
}
/// What the host knows afterwards is as CUDA says ("API synchronization behavior"): all of it, but after a copy to
/// device memory from pageable memory only that the bytes were read, and after one within the device nothing.
cudaError_t cudaMemcpy(void* target, const void* source, size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return answer(cudaSuccess);
  if (source == nullptr) return answer(cudaErrorInvalidValue);
  const bool pageable = !Machine::get().memory().covers(source);
  const bool returns_early = on_device(target) && (pageable || on_device(source));
  const bool stage = returns_early && pageable;
  if (stage && cudaStreamSynchronize(nullptr) != cudaSuccess) return answer(cudaSuccess);
  const cudaError_t error = enqueue_transfer({.name = "cudaMemcpy",
                                              .target = static_cast<std::byte*>(target),
                                              .source = static_cast<const std::byte*>(source),
                                              .bytes = static_cast<int64_t>(bytes)},
                                             kind, nullptr, stage);
  return error != cudaSuccess || returns_early ? error : cudaStreamSynchronize(nullptr);
}
cudaError_t cudaMemsetAsync(void* target, int value, size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return answer(cudaSuccess);
  return enqueue_transfer({.name = "cudaMemset",
                           .target = static_cast<std::byte*>(target),
                           .value = value,
                           .bytes = static_cast<int64_t>(bytes)},
                          cudaMemcpyDeviceToDevice, stream);
}
cudaError_t cudaMemset(void* target, int value, size_t bytes) {
  const cudaError_t error = cudaMemsetAsync(target, value, bytes, nullptr);
  return error != cudaSuccess || on_device(target) ? error : cudaStreamSynchronize(nullptr);  // as CUDA says, too
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (stream == nullptr || (flags != cudaStreamDefault && flags != cudaStreamNonBlocking)) {
    return answer(cudaErrorInvalidValue);
  }
  *stream = reinterpret_cast<cudaStream_t>(&runtime().streams.make(runtime().device));
  return answer(cudaSuccess);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Stream* const queue = runtime().streams.find(stream, runtime().device);
  if (queue == nullptr) return answer(cudaErrorInvalidResourceHandle);
  if (!failed()) runtime().streams.synchronise(*queue);
  return answer(cudaSuccess);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Stream* const queue = stream == nullptr ? nullptr : runtime().streams.find(stream, runtime().device);
  if (queue == nullptr) return answer(cudaErrorInvalidResourceHandle);
  queue->destroyed = true;  // returns at once; what is in it still runs
  return answer(cudaSuccess);
}
cudaError_t cudaDeviceSynchronize() {
  if (!failed()) runtime().streams.synchronise_device(runtime().device);
  return answer(cudaSuccess);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  if (event == nullptr) return answer(cudaErrorInvalidValue);
  *event = reinterpret_cast<cudaEvent_t>(&runtime().streams.make_event(runtime().device));
  return answer(cudaSuccess);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Stream* const queue = runtime().streams.find(stream, runtime().device);
  Event* const known = runtime().streams.find(event);
  if (queue == nullptr || known == nullptr) return answer(cudaErrorInvalidResourceHandle);
  if (known->device != queue->device) return answer(cudaErrorInvalidResourceHandle);
  known->latest = std::make_shared<Ticket>();
  runtime().streams.enqueue(*queue, {.record = known->latest});
  return answer(cudaSuccess);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  Stream* const queue = runtime().streams.find(stream, runtime().device);
  Event* const known = runtime().streams.find(event);
  if (queue == nullptr || known == nullptr) return answer(cudaErrorInvalidResourceHandle);
  if (known->latest != nullptr) runtime().streams.enqueue(*queue, {.wait = known->latest});
  return answer(cudaSuccess);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Event* const known = runtime().streams.find(event);
  if (known == nullptr) return answer(cudaErrorInvalidResourceHandle);
  if (!failed()) runtime().streams.synchronise(*known);
  return answer(cudaSuccess);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Event* const known = runtime().streams.find(event);
  if (known == nullptr) return answer(cudaErrorInvalidResourceHandle);
  known->destroyed = true;
  return answer(cudaSuccess);
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = runtime().last;
  runtime().last = runtime().sticky;
  return error;
}
cudaError_t cudaPeekAtLastError() {
  return runtime().last;
}
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {  // NOLINT: the errors that this runtime gives
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidMemcpyDirection:
      return "cudaErrorInvalidMemcpyDirection";
    case cudaErrorInvalidDeviceFunction:
      return "cudaErrorInvalidDeviceFunction";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorMisalignedAddress:
      return "cudaErrorMisalignedAddress";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorLaunchTimeout:
      return "cudaErrorLaunchTimeout";
    case cudaErrorPeerAccessAlreadyEnabled:
      return "cudaErrorPeerAccessAlreadyEnabled";
    case cudaErrorNotSupported:
      return "cudaErrorNotSupported";
    default:
      return "unrecognized error code";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  return cudaGetErrorName(error);
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (!kernels().contains(kernel)) return answer(cudaErrorInvalidDeviceFunction);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return answer(cudaErrorNotSupported);
  if (value < 0 || value > kMostSharedBytes) return answer(cudaErrorInvalidValue);
  runtime().allowed_shared_bytes[{runtime().device, kernel}] = std::max<int64_t>(value, kSharedBytesWithoutAsking);
  return answer(cudaSuccess);
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads,
                                                          size_t shared_bytes) {
  if (!kernels().contains(kernel)) return answer(cudaErrorInvalidDeviceFunction);
  if (threads < 1 || threads > static_cast<int>(kMostThreadsPerBlock)) return answer(cudaErrorInvalidValue);
  return give(blocks,
              static_cast<int>(resident_blocks_per_multiprocessor(threads, static_cast<int64_t>(shared_bytes))));
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments) {
  if (failed()) return answer(cudaSuccess);
  if (config == nullptr) return answer(cudaErrorInvalidValue);
  const auto known = kernels().find(kernel);
  if (known == kernels().end()) return answer(cudaErrorInvalidDeviceFunction);
  Stream* const stream = runtime().streams.find(config->stream, runtime().device);
  if (stream == nullptr || stream->device != runtime().device) return answer(cudaErrorInvalidResourceHandle);
  if (!valid_shape(config->gridDim, config->blockDim)) return answer(cudaErrorInvalidConfiguration);
  const auto allowed = runtime().allowed_shared_bytes.find({runtime().device, kernel});
  const int64_t most_bytes =
      allowed == runtime().allowed_shared_bytes.end() ? kSharedBytesWithoutAsking : allowed->second;
  if (static_cast<int64_t>(config->dynamicSmemBytes) > most_bytes) return answer(cudaErrorInvalidValue);
  Operation operation;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config->attrs[i];
    if (attribute.id != cudaLaunchAttributeProgrammaticStreamSerialization) return answer(cudaErrorNotSupported);
    operation.programmatic = attribute.val.programmaticStreamSerializationAllowed != 0;
  }
  auto grid = std::make_shared<Grid>();
  const KernelEntry& entry = known->second;
  grid->kernel = &entry;
  grid->size = config->gridDim;
  grid->block_size = config->blockDim;
  grid->shared_bytes = static_cast<int64_t>(config->dynamicSmemBytes);
  grid->device = runtime().device;
  for (size_t i = 0; i < entry.arguments; ++i) {
    const auto* const bytes = static_cast<const std::byte*>(arguments[i]);
    grid->arguments.emplace_back(bytes, bytes + entry.argument_bytes[i]);
    grid->argument_pointers.push_back(grid->arguments.back().data());
  }
  operation.grid = std::move(grid);
  runtime().streams.enqueue(*stream, std::move(operation));
  return answer(cudaSuccess);
}

}  // extern "C"
