// The half of the program that sees CUDA, behind a table of functions: a shared library of its own, so that the program
// starts at once and runs where neither driver nor libraries are. One of two source files is linked:
// cuda_library_open.cpp opens that library when it is first asked for, the tests' one is linked to stand-ins.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "kernels/backend.hpp"
#include "kernels/cuda/backend_options.hpp"
#include "kernels/cuda/device_facts.hpp"
#include "parallel/communicator.hpp"
#include "parallel/peer_copies.hpp"
#include "parallel/sum_bench.hpp"
#include "parallel/world.hpp"

namespace shardscope::parallel {

/// Changes with what program and library hand to each other: they have to be of one build.
inline constexpr uint64_t kCudaLibraryLayout =
    (((((uint64_t{1} * 4096 + sizeof(cuda::BackendOptions)) * 4096 + sizeof(cuda::DeviceFacts)) * 64 +
       sizeof(kernels::Activations)) *
          256 +
      sizeof(kernels::NormedInput)) *
         256 +
     sizeof(kernels::Step)) *
        256 +
    sizeof(CommunicatorOptions);

struct CudaLibrary {
  uint64_t layout = kCudaLibraryLayout;  // first: what follows may be of another build
  bool emulated = false;                 // on stand-ins: what it measures is no measurement

  /// visible_devices: the value of CUDA_VISIBLE_DEVICES, if it is set. Throws nothing for what is wrong with devices.
  cuda::DeviceProbe (*probe)(const std::optional<std::string>& visible_devices) = nullptr;
  /// Of that device, on which it makes a context.
  cuda::DeviceMemory (*memory)(int device) = nullptr;
  std::unique_ptr<kernels::Backend> (*make_backend)(const cuda::BackendOptions& options) = nullptr;
  /// Sums on the backend's device; everything else by `host`. Collective over the group of `host`. Both it and the
  /// backend's recordings end before the backend; the recordings first.
  std::unique_ptr<Communicator> (*make_communicator)(World& world, std::unique_ptr<Communicator> host,
                                                     kernels::Backend& backend,
                                                     const CommunicatorOptions& options) = nullptr;
  /// Of the group of `host`, on the backend's device; of these kinds, kAuto: all. Collective; ends before the backend.
  std::unique_ptr<SumBench> (*make_sum_bench)(World& world, std::unique_ptr<Communicator> host,
                                              kernels::Backend& backend, std::span<const CommunicatorKind> kinds,
                                              bool shared_devices) = nullptr;
  /// Copies between the devices that this process sees; visible_devices: as probe. Throws SystemError.
  PeerCopies (*measure_copies)(const std::optional<std::string>& visible_devices,
                               const PeerCopiesWanted& wanted) = nullptr;
  /// Name to version: "cuBLASLt", "NCCL", and of the runtime and the driver.
  std::map<std::string, std::string> (*versions)() = nullptr;
};

/// The library, or why there is none.
struct CudaLibraryResult {
  const CudaLibrary* library = nullptr;
  std::string why_none;  // one line: what, and what to do
};

/// Opens it at the first call.
CudaLibraryResult cuda_library();

/// The name of the one function that the shared library offers, a `const CudaLibrary* ()`.
inline constexpr const char* kCudaLibraryEntry = "shardscope_cuda_library";

}  // namespace shardscope::parallel
