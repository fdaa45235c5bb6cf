// Notes of when operations ran: by kernels around others, and by the kernels themselves.
#include <catch2/catch.hpp>

#include "kernels/cuda/operation_stamps.hpp"
#include "kernels/cuda/rms_norm.hpp"
#include "tests/kernels/cuda/conditions.hpp"
#include "tests/kernels/cuda/device_array.hpp"

using namespace shardscope;
using namespace shardscope::test;

namespace {

constexpr int64_t kColumns = 64;

void enqueue_norm(const DeviceArray<float>& x, cudaStream_t stream) {
  check_cuda(cuda::rms_norm({.rows = 1,
                             .columns = kColumns,
                             .x = x.data(),
                             .x_stride = kColumns,
                             .weight = x.data(),
                             .out = x.data(),
                             .out_stride = kColumns},
                            stream),
             "rms_norm");
}

}  // namespace

TEST_CASE("cuda operation_stamps: begin and end around other kernels, anew in each replay") {
  under_conditions([] {
    const auto stamps = DeviceArray<cuda::OperationStamps>::zeros(2);
    const DeviceArray<float> x(std::vector<float>(kColumns, 1.0F));
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    cudaStream_t stream = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    check_cuda(cudaMemsetAsync(stamps.data(), 0, 2 * sizeof(cuda::OperationStamps), stream), "cudaMemsetAsync");
    for (const int operation : {0, 1, 1}) {  // of the second the first begin and the last end count
      check_cuda(cuda::stamp_begin(stamps.data() + operation, stream), "stamp_begin");
      enqueue_norm(x, stream);
      check_cuda(cuda::stamp_end(stamps.data() + operation, stream), "stamp_end");
    }
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check_cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    check_cuda(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    uint64_t last = 0;
    for (int replay = 0; replay < 3; ++replay) {
      check_cuda(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
      check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
      const std::vector<cuda::OperationStamps> noted = stamps.download();
      for (const cuda::OperationStamps& one : noted) {
        CHECK(~one.begun >= last);
        CHECK(one.end_ns >= ~one.begun);
        CHECK(one.arrived == 0);
        last = one.end_ns;
      }
      // Four more notes lie between, where an emulated clock goes on at every reading.
      CHECK(noted[1].end_ns - ~noted[1].begun >= noted[0].end_ns - ~noted[0].begun);
    }
    check_cuda(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
    check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
  });
}

TEST_CASE("cuda operation_stamps: the clock's step is found") {
  under_conditions({.seeds = 1}, [] {
    const DeviceArray<uint64_t> step(1);
    check_cuda(cuda::measure_clock_step(step.data(), nullptr), "measure_clock_step");
    const uint64_t step_ns = step.download()[0];
    CHECK(step_ns >= 1);
    CHECK(step_ns <= 2000);  // 1 us on most devices
  });
}

TEST_CASE("cuda operation_stamps: what it refuses") {
  under_conditions({.seeds = 0}, [] {
    const auto stamps = DeviceArray<cuda::OperationStamps>::zeros(1);
    auto* const crooked = reinterpret_cast<cuda::OperationStamps*>(reinterpret_cast<std::byte*>(stamps.data()) + 4);
    CHECK(cuda::stamp_begin(nullptr, nullptr) == cudaErrorInvalidValue);
    CHECK(cuda::stamp_end(nullptr, nullptr) == cudaErrorInvalidValue);
    CHECK(cuda::stamp_begin(crooked, nullptr) == cudaErrorInvalidValue);
    CHECK(cuda::stamp_end(crooked, nullptr) == cudaErrorInvalidValue);
    CHECK(cuda::measure_clock_step(nullptr, nullptr) == cudaErrorInvalidValue);
  });
}
