#include "tests/emulation/fakes/cudart/launches.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "tests/emulation/device/emulated_launch.hpp"
#include "tests/emulation/fakes/cudart/runtime.hpp"
#include "tests/emulation/fakes/lock.hpp"
#include "tests/emulation/symbols.hpp"

namespace shardscope::emulation {
namespace {

// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": the same from 8.0 on.
constexpr unsigned kMostThreadsPerBlock = 1024;
constexpr int64_t kSharedBytesWithoutAsking = 48 << 10;
constexpr int kFirstWithProgrammaticLaunches = 9;  // compute capability

struct Kernels {
  std::map<const void*, KernelEntry> known;  // by their address
  /// How much dynamic shared memory kernels were allowed, where it is more than without asking.
  std::map<std::pair<int, const void*>, int64_t> allowed_shared_bytes;  // [device, kernel]

  const KernelEntry* find(const void* kernel) const {
    const auto found = known.find(kernel);
    return found == known.end() ? nullptr : &found->second;
  }
};

Kernels& kernels() {
  static auto& it = *new Kernels;
  return it;
}

const GpuModel& model_of_current_device() {
  return *Machine::get().gpu(current_device()).model;
}

bool valid_shape(const dim3& grid, const dim3& block) {
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  return grid.x >= 1 && grid.y >= 1 && grid.z >= 1 && grid.x <= 0x7FFFFFFFu && grid.y <= 65535 && grid.z <= 65535 &&
         threads >= 1 && threads <= kMostThreadsPerBlock && block.z <= 64;
}

cudaError_t occupancy(const Call& call, int* blocks, const void* kernel, int threads, size_t shared_bytes) {
  if (call.fails()) return failure(call);
  if (kernels().find(kernel) == nullptr) return refused(call, cudaErrorInvalidDeviceFunction, "no such kernel");
  if (threads < 1 || threads > static_cast<int>(kMostThreadsPerBlock)) {
    return refused(call, cudaErrorInvalidValue, fmt::format("{} threads in a block", threads));
  }
  const int64_t many =
      Machine::get().resident_blocks_per_multiprocessor(current_device(), threads, static_cast<int64_t>(shared_bytes));
  return give(call, blocks, static_cast<int>(many));
}

}  // namespace

void declare_kernel(const KernelEntry& entry) {
  const Locked locked;
  kernels().known.try_emplace(entry.kernel, entry);
}

void forget_launches() {
  kernels().allowed_shared_bytes.clear();
}

}  // namespace shardscope::emulation

using namespace shardscope::emulation;  // NOLINT(google-build-using-namespace): these have C names

extern "C" {

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  const Call call("cudaFuncSetAttribute");
  if (call.fails()) return failure(call);
  if (kernels().find(kernel) == nullptr) return refused(call, cudaErrorInvalidDeviceFunction, "no such kernel");
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) {
    return refused(call, cudaErrorNotSupported, "only the dynamic shared memory can be set here");
  }
  const int64_t most = model_of_current_device().most_shared_bytes_per_block;
  if (value < 0 || value > most) {
    return refused(call, cudaErrorInvalidValue,
                   fmt::format("{} bytes of shared memory, of which a block can have {}", value, most));
  }
  kernels().allowed_shared_bytes[{current_device(), kernel}] = std::max<int64_t>(value, kSharedBytesWithoutAsking);
  return answer(cudaSuccess);
}

/// Every kernel is compiled for the very device.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  const Call call("cudaFuncGetAttributes");
  if (call.fails()) return failure(call);
  if (attributes == nullptr) return refused(call, cudaErrorInvalidValue, "attributes: a null pointer");
  if (kernels().find(kernel) == nullptr) return refused(call, cudaErrorInvalidDeviceFunction, "no such kernel");
  const auto& model = model_of_current_device();
  *attributes = {};
  attributes->binaryVersion = attributes->ptxVersion = 10 * model.compute_major + model.compute_minor;
  attributes->maxThreadsPerBlock = 1024;  // of every device that we have, CUDA C++ Programming Guide
  return answer(cudaSuccess);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads,
                                                          size_t shared_bytes) {
  const Call call("cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  return occupancy(call, blocks, kernel, threads, shared_bytes);
}
/// What the header's template for typed kernels calls.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* kernel, int threads,
                                                                   size_t shared_bytes, unsigned flags) {
  const Call call("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags");
  if (flags != cudaOccupancyDefault) return refused(call, cudaErrorInvalidValue, "the flags have to be the default");
  return occupancy(call, blocks, kernel, threads, shared_bytes);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments) {
  const Call call("cudaLaunchKernelExC");
  if (call.fails()) return failure(call, cudaErrorLaunchOutOfResources);
  if (failed()) return answer(cudaSuccess);
  if (config == nullptr) return refused(call, cudaErrorInvalidValue, "no configuration");
  const KernelEntry* const entry = kernels().find(kernel);
  if (entry == nullptr) return refused(call, cudaErrorInvalidDeviceFunction, "no such kernel");
  Stream* const stream = handles().find(config->stream);
  if (stream == nullptr) return refused(call, cudaErrorInvalidResourceHandle, "no such stream");
  if (stream->device != current_device()) {
    return refused(
        call, cudaErrorInvalidResourceHandle,
        fmt::format("the stream is of device {}, the current device is {}", stream->device, current_device()));
  }
  if (!valid_shape(config->gridDim, config->blockDim)) {
    return refused(call, cudaErrorInvalidConfiguration,
                   fmt::format("a grid of {}x{}x{} blocks of {}x{}x{} threads", config->gridDim.x, config->gridDim.y,
                               config->gridDim.z, config->blockDim.x, config->blockDim.y, config->blockDim.z));
  }
  const auto allowed = kernels().allowed_shared_bytes.find({current_device(), kernel});
  const int64_t most_bytes =
      allowed == kernels().allowed_shared_bytes.end() ? kSharedBytesWithoutAsking : allowed->second;
  if (static_cast<int64_t>(config->dynamicSmemBytes) > most_bytes) {
    return refused(call, cudaErrorInvalidValue,
                   fmt::format("{} bytes of dynamic shared memory, of which {} are allowed to the kernel",
                               config->dynamicSmemBytes, most_bytes));
  }
  bool programmatic = false;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config->attrs[i];
    if (attribute.id != cudaLaunchAttributeProgrammaticStreamSerialization) {
      return refused(call, cudaErrorNotSupported, fmt::format("launch attribute {}", static_cast<int>(attribute.id)));
    }
    programmatic = attribute.val.programmaticStreamSerializationAllowed != 0;
  }
  if (programmatic && model_of_current_device().compute_major < kFirstWithProgrammaticLaunches) {
    return refused(call, cudaErrorNotSupported,
                   fmt::format("a programmatic launch on {}", model_of_current_device().name));
  }
  auto launch = std::make_shared<KernelLaunch>();
  launch->kernel = entry;
  launch->size = config->gridDim;
  launch->block_size = config->blockDim;
  launch->shared_bytes = static_cast<int64_t>(config->dynamicSmemBytes);
  for (size_t i = 0; i < entry->arguments; ++i) {
    const auto* const bytes = static_cast<const std::byte*>(arguments[i]);
    launch->arguments.emplace_back(bytes, bytes + entry->argument_bytes[i]);
  }
  Operation operation;
  operation.launch = std::move(launch);
  const cudaError_t error = enqueue(call, *stream, std::move(operation), programmatic);
  wake_worker();
  return answer(error);
}

}  // extern "C"
