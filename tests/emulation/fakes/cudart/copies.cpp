// Memory and copies of the stand-in runtime.
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "tests/emulation/fakes/cudart/ipc.hpp"
#include "tests/emulation/fakes/cudart/runtime.hpp"
#include "tests/emulation/fakes/lock.hpp"

namespace shardscope::emulation {
namespace {

/// True if the address may stand on that side of a copy. Else says why not.
bool fits_side(const Call& call, const void* address, int64_t bytes, bool device_side) {
  const DeviceMemory& memory = Machine::get().memory();
  const std::string_view side = device_side ? "the device's side" : "the host's side";
  if (!memory.covers(address)) {
    if (device_side) call.refuse(fmt::format("{}: an address that is no device's", side));
    return !device_side;
  }
  const Allocation* const allocation = live_allocation(address, bytes);
  if (allocation == nullptr) {
    call.refuse(fmt::format("{}: {} bytes that do not lie in one allocation that lives", side, bytes));
    return false;
  }
  if (allocation->device != kPinned && !device_side) {
    call.refuse(fmt::format("{}: {}", side, allocation->description()));
    return false;
  }
  return true;
}

bool on_device(const void* address) {
  const DeviceMemory& memory = Machine::get().memory();
  return memory.covers(address) && memory.device_of(address) != kPinned;
}

/// Pageable memory of the host: neither a device's nor pinned.
bool pageable(const void* address) {
  return address != nullptr && !Machine::get().memory().covers(address);
}

/// The direction that cudaMemcpyDefault means, by where the addresses lie. Pinned memory is the host's.
cudaMemcpyKind direction_of(const Transfer& transfer) {
  if (on_device(transfer.target)) return on_device(transfer.source) ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice;
  return on_device(transfer.source) ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost;
}

cudaError_t check_transfer(const Call& call, const Transfer& transfer, cudaMemcpyKind kind) {
  if (transfer.bytes < 0 || (transfer.target == nullptr && transfer.bytes > 0)) {
    return refused(call, cudaErrorInvalidValue, "a null pointer, or a size that is none");
  }
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) {
    return refused(call, cudaErrorInvalidMemcpyDirection, fmt::format("direction {} is none", static_cast<int>(kind)));
  }
  if (transfer.bytes == 0) return cudaSuccess;
  if (kind == cudaMemcpyDefault) kind = direction_of(transfer);
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (!fits_side(call, transfer.target, transfer.bytes, to_device) ||
      (transfer.source != nullptr && !fits_side(call, transfer.source, transfer.bytes, from_device))) {
    return answer(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

/// The asynchronous copies and fills. From pageable memory the bytes are read now, to pageable memory the host waits,
/// as CUDA says ("API synchronization behavior").
cudaError_t transfer_in_stream(const Call& call, Transfer transfer, cudaMemcpyKind kind, cudaStream_t stream) {
  if (failed()) return answer(cudaSuccess);
  Stream* const queue = handles().find(stream);
  if (queue == nullptr) return refused(call, cudaErrorInvalidResourceHandle, "no such stream");
  if (const cudaError_t error = check_transfer(call, transfer, kind); error != cudaSuccess) return error;
  if (transfer.bytes == 0) return answer(cudaSuccess);
  const bool to_pageable = pageable(transfer.target);
  if (to_pageable || pageable(transfer.source)) {
    if (queue->capture != nullptr) {
      return answer(
          invalidate(call, *queue->capture, cudaErrorStreamCaptureUnsupported, "pageable memory in a graph: pin it"));
    }
    if (!to_pageable) {
      transfer.staged.assign(transfer.source, transfer.source + transfer.bytes);
      transfer.source = nullptr;
    }
  }
  Operation operation;
  operation.transfer = std::make_shared<const Transfer>(std::move(transfer));
  const cudaError_t error = enqueue(call, *queue, std::move(operation));
  wake_worker();
  if (error != cudaSuccess || !to_pageable) return answer(error);
  return synchronise(call, *queue);
}

cudaError_t allocate(const Call& call, void** address, int device, size_t bytes) {
  if (address == nullptr) return refused(call, cudaErrorInvalidValue, "nowhere to put the address");
  *address = nullptr;
  if (call.fails()) return failure(call, cudaErrorMemoryAllocation);
  if (failed()) return answer(cudaSuccess);
  if (const cudaError_t error = outside_captures(call); error != cudaSuccess) return answer(error);
  if (bytes == 0) return answer(cudaSuccess);
  Machine& machine = Machine::get();
  constexpr int64_t kMostPinnedBytes = int64_t{128} << 30;
  const int64_t used = machine.memory().used_bytes(device);
  const int64_t free = device == kPinned ? kMostPinnedBytes - used : machine.free_bytes(device);
  const bool possible = bytes <= static_cast<size_t>(free);  // a size that wrapped around is not
  Allocation* const allocation =
      possible ? machine.memory().allocate(device, static_cast<int64_t>(bytes), free + used) : nullptr;
  if (allocation == nullptr) {
    return refused(call, cudaErrorMemoryAllocation, fmt::format("{} bytes, of which {} are free", bytes, free));
  }
  *address = allocation->begin;
  allocation->made_by = current_device();
  // The host writes pinned memory without telling anybody.
  if (device == kPinned) allocation->written.set(0, allocation->bytes, true);
  return answer(cudaSuccess);
}

cudaError_t release(const Call& call, void* address, bool pinned) {
  if (call.fails()) return failure(call);
  if (address == nullptr) return answer(cudaSuccess);
  if (const cudaError_t error = outside_captures(call); error != cudaSuccess) return answer(error);
  const Allocation* const allocation = live_allocation(address, 0);
  if (allocation == nullptr || allocation->begin != address) {
    return refused(call, cudaErrorInvalidValue, "no allocation that lives begins there");
  }
  const int device = allocation->device;
  if ((device == kPinned) != pinned || device == kImported || allocation->library_memory) {
    return refused(call, cudaErrorInvalidValue,
                   fmt::format("{} is not to be freed by this function", allocation->description()));
  }
  // As the real ones do: what was enqueued may still use it. That they wait is nothing to rely on.
  drain(call, device);
  if (allocation->freed) return refused(call, cudaErrorInvalidValue, "another thread has freed it meanwhile");
  if (!failed()) report_needed(*allocation);
  end_export(*allocation);
  Machine::get().memory().free(address);  // after a fault, too
  return answer(cudaSuccess);
}

}  // namespace
}  // namespace shardscope::emulation

using namespace shardscope::emulation;  // NOLINT(google-build-using-namespace): these have C names

extern "C" {

cudaError_t cudaMalloc(void** address, size_t bytes) {
  const Call call("cudaMalloc");
  return allocate(call, address, current_device(), bytes);
}
cudaError_t cudaFree(void* address) {
  const Call call("cudaFree");
  return release(call, address, false);
}
cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned flags) {
  const Call call("cudaHostAlloc");
  constexpr unsigned kKnown = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
  if ((flags & ~kKnown) != 0) return refused(call, cudaErrorInvalidValue, fmt::format("flags {}", flags));
  return allocate(call, address, kPinned, bytes);
}
cudaError_t cudaMallocHost(void** address, size_t bytes) {
  const Call call("cudaMallocHost");
  return allocate(call, address, kPinned, bytes);
}
cudaError_t cudaFreeHost(void* address) {
  const Call call("cudaFreeHost");
  return release(call, address, true);
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* all_bytes) {
  const Call call("cudaMemGetInfo");
  if (call.fails()) return failure(call);
  if (free_bytes == nullptr || all_bytes == nullptr) {
    return refused(call, cudaErrorInvalidValue, "nowhere to put the answer: a null pointer");
  }
  const Machine& machine = Machine::get();
  *all_bytes = static_cast<size_t>(machine.memory_bytes(current_device()));
  *free_bytes = static_cast<size_t>(machine.free_bytes(current_device()));
  return answer(cudaSuccess);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  const Call call("cudaPointerGetAttributes");
  if (call.fails()) return failure(call);
  if (attributes == nullptr) return refused(call, cudaErrorInvalidValue, "nowhere to put the answer");
  *attributes = {};
  const Allocation* const allocation = live_allocation(address, 1);
  if (allocation == nullptr) {
    if (Machine::get().memory().covers(address)) {
      return refused(call, cudaErrorInvalidValue, "an address of a device where nothing lives");
    }
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = cudaInvalidDeviceId;
    attributes->hostPointer = const_cast<void*>(address);
    return answer(cudaSuccess);
  }
  const bool pinned = allocation->device == kPinned;
  attributes->type = pinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  attributes->device = pinned                            ? allocation->made_by
                       : allocation->device == kImported ? allocation->importer
                                                         : allocation->device;
  attributes->devicePointer = const_cast<void*>(address);
  attributes->hostPointer = pinned ? const_cast<void*>(address) : nullptr;
  return answer(cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const Call call("cudaMemcpyAsync");
  if (call.fails()) return failure(call);
  if (source == nullptr) return refused(call, cudaErrorInvalidValue, "a null pointer");
  return transfer_in_stream(call,
                            {.name = "cudaMemcpyAsync",
                             .target = static_cast<std::byte*>(target),
                             .source = static_cast<const std::byte*>(source),
                             .bytes = static_cast<int64_t>(bytes)},
                            kind, stream);
}
/// Through host memory where no peer access is enabled, so that what loses peers' writes does not matter there.
cudaError_t cudaMemcpyPeerAsync(void* target, int target_device, const void* source, int source_device, size_t bytes,
                                cudaStream_t stream) {
  const Call call("cudaMemcpyPeerAsync");
  if (call.fails()) return failure(call);
  Machine& machine = Machine::get();
  for (const auto& [address, device] : {std::pair<const void*, int>(target, target_device), {source, source_device}}) {
    if (device < 0 || device >= machine.devices()) {
      return refused(call, cudaErrorInvalidDevice, fmt::format("there is no device {}", device));
    }
    const Allocation* const allocation = live_allocation(address, static_cast<int64_t>(bytes));
    if (allocation == nullptr || allocation->device != device) {
      return refused(call, cudaErrorInvalidValue,
                     fmt::format("{} bytes that do not lie in an allocation of device {}", bytes, device));
    }
  }
  const bool direct = machine.peer_enabled[source_device][target_device];
  return transfer_in_stream(call,
                            {.name = "cudaMemcpyPeerAsync",
                             .target = static_cast<std::byte*>(target),
                             .source = static_cast<const std::byte*>(source),
                             .bytes = static_cast<int64_t>(bytes),
                             .device = direct ? -1 : target_device},
                            cudaMemcpyDeviceToDevice, stream);
}
/// What the host knows afterwards is as CUDA says ("API synchronization behavior"): all of it, but after a copy to
/// device memory from pageable memory only that the bytes were read, and after one within the device nothing.
cudaError_t cudaMemcpy(void* target, const void* source, size_t bytes, cudaMemcpyKind kind) {
  const Call call("cudaMemcpy");
  if (call.fails()) return failure(call);
  if (source == nullptr) return refused(call, cudaErrorInvalidValue, "a null pointer");
  if (const cudaError_t error = outside_captures(call); error != cudaSuccess) return answer(error);
  const bool to_device = on_device(target);
  const bool returns_early = to_device && (pageable(source) || on_device(source));
  const Stream& queue = handles().null_stream();
  if (to_device && pageable(source)) {
    if (const cudaError_t error = synchronise(call, queue); error != cudaSuccess) return error;
  }
  const cudaError_t error = transfer_in_stream(call,
                                               {.name = "cudaMemcpy",
                                                .target = static_cast<std::byte*>(target),
                                                .source = static_cast<const std::byte*>(source),
                                                .bytes = static_cast<int64_t>(bytes)},
                                               kind, nullptr);
  return error != cudaSuccess || returns_early ? error : synchronise(call, queue);
}
cudaError_t cudaMemsetAsync(void* target, int value, size_t bytes, cudaStream_t stream) {
  const Call call("cudaMemsetAsync");
  if (call.fails()) return failure(call);
  return transfer_in_stream(call,
                            {.name = "cudaMemsetAsync",
                             .target = static_cast<std::byte*>(target),
                             .value = value,
                             .bytes = static_cast<int64_t>(bytes)},
                            cudaMemcpyDeviceToDevice, stream);
}
cudaError_t cudaMemset(void* target, int value, size_t bytes) {
  const Call call("cudaMemset");
  if (call.fails()) return failure(call);
  if (const cudaError_t error = outside_captures(call); error != cudaSuccess) return answer(error);
  const cudaError_t error = transfer_in_stream(call,
                                               {.name = "cudaMemset",
                                                .target = static_cast<std::byte*>(target),
                                                .value = value,
                                                .bytes = static_cast<int64_t>(bytes)},
                                               cudaMemcpyDeviceToDevice, nullptr);
  if (error != cudaSuccess || on_device(target)) return error;
  return synchronise(call, handles().null_stream());  // as CUDA says of memory of the host
}

}  // extern "C"
