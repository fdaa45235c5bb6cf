// Notes of when calls that are not ours began and ended.
#include "kernels/cuda/call_times.hpp"

#include <catch2/catch.hpp>

#include "kernels/cuda/rms_norm.hpp"
#include "tests/kernels/cuda/conditions.hpp"
#include "tests/kernels/cuda/device_array.hpp"

using namespace shardscope;
using namespace shardscope::test;

TEST_CASE("cuda call_times: begin and end of each call, also of replayed ones, the latest ones kept") {
  under_conditions([] {
    constexpr uint32_t kEntries = 4;
    constexpr uint32_t kReplays = 3;
    const auto entries = DeviceArray<cuda::CallTimes>::zeros(kEntries);
    const auto calls = DeviceArray<uint32_t>::zeros(1);
    const DeviceArray<float> x(std::vector<float>(64, 1.0F));
    const cuda::CallLog log{.entries = entries.data(), .count = kEntries};
    cudaStream_t stream = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    for (int call = 0; call < 2; ++call) {
      check_cuda(cuda::note_begin(log, calls.data(), stream), "note_begin");
      check_cuda(cuda::rms_norm({.rows = 1,
                                 .columns = 64,
                                 .x = x.data(),
                                 .x_stride = 64,
                                 .weight = x.data(),
                                 .out = x.data(),
                                 .out_stride = 64},
                                stream),
                 "rms_norm");
      check_cuda(cuda::note_end(log, calls.data(), stream), "note_end");
    }
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check_cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    check_cuda(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    for (uint32_t i = 0; i < kReplays; ++i) check_cuda(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");

    CHECK(calls.download()[0] == 2 * kReplays);
    const std::vector<cuda::CallTimes> times = entries.download();
    uint64_t last = 0;
    for (uint32_t number = 3; number <= 6; ++number) {
      INFO("call " << number);
      const cuda::CallTimes& call = times[number % kEntries];
      CHECK(call.number == number);
      CHECK(call.begin_ns > last);
      CHECK(call.end_ns >= call.begin_ns);
      CHECK(call.arrived_ns == 0);
      last = call.end_ns;
    }
    check_cuda(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
    check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
  });
}

TEST_CASE("cuda call_times: what it refuses") {
  under_conditions({.seeds = 0}, [] {
    const auto entries = DeviceArray<cuda::CallTimes>::zeros(4);
    const auto calls = DeviceArray<uint32_t>::zeros(1);
    CHECK(cuda::note_begin({.entries = nullptr, .count = 4}, calls.data(), nullptr) == cudaErrorInvalidValue);
    CHECK(cuda::note_begin({.entries = entries.data(), .count = 3}, calls.data(), nullptr) == cudaErrorInvalidValue);
    CHECK(cuda::note_end({.entries = entries.data(), .count = 0}, calls.data(), nullptr) == cudaErrorInvalidValue);
    CHECK(cuda::note_end({.entries = entries.data(), .count = 4}, nullptr, nullptr) == cudaErrorInvalidValue);
  });
}
