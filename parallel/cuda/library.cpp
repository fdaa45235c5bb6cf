#include "parallel/cuda/library.hpp"

#include <cublasLt.h>
#include <nccl.h>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "kernels/cuda/backend.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/cuda/device_probe.hpp"
#include "parallel/cuda/device_communicator.hpp"
#include "parallel/cuda/device_sum_bench.hpp"
#include "parallel/cuda/peer_copies.hpp"

namespace shardscope::parallel {
namespace {

cuda::DeviceMemory memory_of(int device) {
  cuda::check_cuda(cudaSetDevice(device), "cudaSetDevice", {.device = device});
  return cuda::read_memory();
}

std::unique_ptr<kernels::Backend> backend_of(const cuda::BackendOptions& options) {
  return cuda::make_backend(options);
}

cuda::CudaBackend& cuda_of(kernels::Backend& backend) {
  auto* device = dynamic_cast<cuda::CudaBackend*>(&backend);
  require(device != nullptr, "sums on devices were asked for without a CUDA backend");
  return *device;
}

std::unique_ptr<Communicator> communicator_of(World& world, std::unique_ptr<Communicator> host,
                                              kernels::Backend& backend, const CommunicatorOptions& options) {
  return std::make_unique<DeviceCommunicator>(world, std::move(host), cuda_of(backend),
                                              DeviceSumOptions{.kind = options.kind,
                                                               .dtype = backend.precision().activations,
                                                               .message_bytes = options.message_bytes,
                                                               .shared_devices = options.shared_devices});
}

std::unique_ptr<SumBench> sum_bench_of(World& world, std::unique_ptr<Communicator> host, kernels::Backend& backend,
                                       std::span<const CommunicatorKind> kinds, bool shared_devices) {
  return std::make_unique<DeviceSumBench>(world, std::move(host), cuda_of(backend), kinds, shared_devices);
}

std::map<std::string, std::string> versions() {
  int nccl = 0;
  static_cast<void>(ncclGetVersion(&nccl));
  constexpr int kNcclMajor = 10'000;
  constexpr int kHundred = 100;
  const auto cublas = static_cast<int>(cublasLtGetVersion());
  int runtime = 0;
  int driver = 0;
  static_cast<void>(cudaRuntimeGetVersion(&runtime));
  static_cast<void>(cudaDriverGetVersion(&driver));
  return {{"CUDA", cuda::version_text(runtime)},
          {"CUDA of the driver", cuda::version_text(driver)},
          {"NCCL", fmt::format("{}.{}.{}", nccl / kNcclMajor, nccl / kHundred % kHundred, nccl % kHundred)},
          {"cuBLASLt", fmt::format("{}.{}.{}", cublas / kNcclMajor, cublas / kHundred % kHundred, cublas % kHundred)}};
}

}  // namespace

CudaLibrary make_cuda_library() {
  return {.layout = kCudaLibraryLayout,
          .emulated = false,
          .probe = cuda::probe_devices,
          .memory = memory_of,
          .make_backend = backend_of,
          .make_communicator = communicator_of,
          .make_sum_bench = sum_bench_of,
          .measure_copies = measure_peer_copies,
          .versions = versions};
}

}  // namespace shardscope::parallel
