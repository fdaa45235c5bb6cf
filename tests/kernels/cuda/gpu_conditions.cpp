// The tests of the kernels on real GPUs. Without one, the program says so in one line and ends with status 4, which
// ctest takes for skipped.
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <cuda_runtime.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/kernels/cuda/conditions.hpp"
#include "tests/kernels/cuda/device_array.hpp"

namespace shardscope::test {
namespace {

constexpr int kSkipped = 4;

/// Why there is no device, or empty. A driver version of 0 is no driver; the runtime then calls it insufficient.
std::string missing() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess && devices > 0) return "";
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) return "no NVIDIA driver";
  return error == cudaSuccess ? "no CUDA device" : cudaGetErrorString(error);
}

class AskForDevice : public Catch::TestEventListenerBase {
 public:
  using TestEventListenerBase::TestEventListenerBase;
  void testRunStarting(const Catch::TestRunInfo&) override {
    if (const std::string why = missing(); !why.empty()) {
      std::printf("kernels_gpu_test: skipped: %s\n", why.c_str());
      std::fflush(stdout);
      std::_Exit(kSkipped);
    }
    cudaDeviceProp device{};
    check_cuda(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
    std::printf("kernels_gpu_test: on %s, sm_%d%d, %d multiprocessors\n", device.name, device.major, device.minor,
                device.multiProcessorCount);
  }
};
CATCH_REGISTER_LISTENER(AskForDevice)

}  // namespace

void under_conditions(const Conditions&, const std::function<void()>& body) {
  body();
  check_cuda(cudaDeviceSynchronize(), "after the test's body");
}

void under_each_seed(const Conditions& conditions, const std::function<void(uint64_t seed)>& body) {
  for (uint64_t seed = 0; seed <= static_cast<uint64_t>(conditions.seeds); ++seed) {
    INFO("seed " << seed);
    body(seed);
  }
  check_cuda(cudaDeviceSynchronize(), "after the test's body");
}

int device_of_rank(int rank) {
  int devices = 0;
  check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  return rank % devices;
}

}  // namespace shardscope::test
