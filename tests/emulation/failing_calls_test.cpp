// Options::failing: a function of the runtime that is told to fail at its n-th call does, with the error that was
// ordered or one that fits, does nothing, and works again at the next call.
#include <catch2/catch.hpp>

#include <functional>
#include <string>
#include <vector>

#include "tests/emulation/planted_host/host_stand.hpp"

namespace shardscope::planted_host {
namespace {

/// What calls can be made with.
struct World {
  HostStand stand;
  cudaStream_t stream = stand.stream();
  cudaStream_t other = stand.stream();
  cudaEvent_t first = nullptr;
  cudaEvent_t second = nullptr;
  float* numbers = stand.filled(1);
  float* others = stand.filled(2);
  float* pinned = stand.pinned<float>(HostStand::kCount, 3);
  float* spare_pinned = stand.pinned<float>(8, 3);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  void* made = nullptr;
  int number = 0;
  size_t size = 0;

  World() {
    stand.note(cudaEventCreate(&first));
    stand.note(cudaEventCreate(&second));
    stand.note(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    stand.combine(numbers, 1, numbers, others, stream);
    stand.note(cudaStreamEndCapture(stream, &graph));
    stand.note(cudaGraphInstantiate(&executable, graph, 0));
    stand.note(cudaEventRecord(first, stream));
    stand.note(cudaEventRecord(second, stream));
    stand.finish();
  }
};

struct Row {
  std::string function;
  cudaError_t (*call)(World&);
  cudaError_t otherwise = cudaSuccess;  // what it gives when it is not to fail
};

constexpr size_t kBytes = HostStand::kBytes;

const Row kRows[] = {
    {"cudaMalloc", [](World& it) { return cudaMalloc(&it.made, 64); }},
    {"cudaFree", [](World& it) { return cudaFree(it.others); }},
    {"cudaHostAlloc", [](World& it) { return cudaHostAlloc(&it.made, 64, cudaHostAllocDefault); }},
    {"cudaMallocHost", [](World& it) { return cudaMallocHost(&it.made, 64); }},
    {"cudaFreeHost", [](World& it) { return cudaFreeHost(it.spare_pinned); }},
    {"cudaMemGetInfo", [](World& it) { return cudaMemGetInfo(&it.size, &it.size); }},
    {"cudaPointerGetAttributes",
     [](World& it) {
       cudaPointerAttributes attributes{};
       return cudaPointerGetAttributes(&attributes, it.numbers);
     }},
    {"cudaMemcpy", [](World& it) { return cudaMemcpy(it.numbers, it.pinned, kBytes, cudaMemcpyHostToDevice); }},
    {"cudaMemcpyAsync",
     [](World& it) { return cudaMemcpyAsync(it.numbers, it.pinned, kBytes, cudaMemcpyHostToDevice, it.stream); }},
    {"cudaMemset", [](World& it) { return cudaMemset(it.numbers, 0, kBytes); }},
    {"cudaMemsetAsync", [](World& it) { return cudaMemsetAsync(it.numbers, 0, kBytes, it.stream); }},
    {"cudaGetDeviceCount", [](World& it) { return cudaGetDeviceCount(&it.number); }},
    {"cudaSetDevice", [](World&) { return cudaSetDevice(0); }},
    {"cudaGetDevice", [](World& it) { return cudaGetDevice(&it.number); }},
    {"cudaDeviceGetAttribute",
     [](World& it) { return cudaDeviceGetAttribute(&it.number, cudaDevAttrMultiProcessorCount, 0); }},
    {"cudaGetDeviceProperties",
     [](World&) {
       cudaDeviceProp properties{};
       return cudaGetDeviceProperties(&properties, 0);
     }},
    {"cudaDeviceGetPCIBusId",
     [](World&) {
       char text[32];
       return cudaDeviceGetPCIBusId(text, sizeof text, 0);
     }},
    {"cudaDeviceCanAccessPeer", [](World& it) { return cudaDeviceCanAccessPeer(&it.number, 0, 1); }},
    {"cudaDeviceEnablePeerAccess", [](World&) { return cudaDeviceEnablePeerAccess(1, 0); }},
    {"cudaDriverGetVersion", [](World& it) { return cudaDriverGetVersion(&it.number); }},
    {"cudaRuntimeGetVersion", [](World& it) { return cudaRuntimeGetVersion(&it.number); }},
    {"cudaDeviceSynchronize", [](World&) { return cudaDeviceSynchronize(); }},
    {"cudaStreamCreateWithFlags",
     [](World& it) {
       return cudaStreamCreateWithFlags(reinterpret_cast<cudaStream_t*>(&it.made), cudaStreamNonBlocking);
     }},
    {"cudaStreamCreate", [](World& it) { return cudaStreamCreate(reinterpret_cast<cudaStream_t*>(&it.made)); }},
    {"cudaStreamSynchronize", [](World& it) { return cudaStreamSynchronize(it.stream); }},
    {"cudaStreamQuery", [](World& it) { return cudaStreamQuery(it.stream); }},
    {"cudaStreamDestroy", [](World& it) { return cudaStreamDestroy(it.other); }},
    {"cudaStreamWaitEvent", [](World& it) { return cudaStreamWaitEvent(it.other, it.first, 0); }},
    {"cudaStreamBeginCapture",
     [](World& it) {
       const cudaError_t error = cudaStreamBeginCapture(it.other, cudaStreamCaptureModeThreadLocal);
       if (error == cudaSuccess)
         it.stand.note(cudaStreamEndCapture(it.other, reinterpret_cast<cudaGraph_t*>(&it.made)));
       return error;
     }},
    {"cudaStreamEndCapture",
     [](World& it) {
       cudaStreamCaptureStatus status{};
       it.stand.note(cudaStreamIsCapturing(it.other, &status));
       if (status == cudaStreamCaptureStatusNone) {
         it.stand.note(cudaStreamBeginCapture(it.other, cudaStreamCaptureModeThreadLocal));
       }
       return cudaStreamEndCapture(it.other, reinterpret_cast<cudaGraph_t*>(&it.made));
     }},
    {"cudaStreamIsCapturing",
     [](World& it) {
       cudaStreamCaptureStatus status{};
       return cudaStreamIsCapturing(it.stream, &status);
     }},
    {"cudaEventCreateWithFlags",
     [](World& it) {
       return cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(&it.made), cudaEventDisableTiming);
     }},
    {"cudaEventCreate", [](World& it) { return cudaEventCreate(reinterpret_cast<cudaEvent_t*>(&it.made)); }},
    {"cudaEventRecord", [](World& it) { return cudaEventRecord(it.first, it.stream); }},
    {"cudaEventSynchronize", [](World& it) { return cudaEventSynchronize(it.first); }},
    {"cudaEventQuery", [](World& it) { return cudaEventQuery(it.first); }},
    {"cudaEventElapsedTime",
     [](World& it) {
       float milliseconds = 0;
       return cudaEventElapsedTime(&milliseconds, it.first, it.second);
     }},
    {"cudaEventDestroy", [](World& it) { return cudaEventDestroy(it.first); }},
    {"cudaGraphInstantiate",
     [](World& it) { return cudaGraphInstantiate(reinterpret_cast<cudaGraphExec_t*>(&it.made), it.graph, 0); }},
    {"cudaGraphGetNodes", [](World& it) { return cudaGraphGetNodes(it.graph, nullptr, &it.size); }},
    {"cudaGraphLaunch", [](World& it) { return cudaGraphLaunch(it.executable, it.stream); }},
    {"cudaGraphDestroy", [](World& it) { return cudaGraphDestroy(it.graph); }},
    {"cudaGraphExecDestroy", [](World& it) { return cudaGraphExecDestroy(it.executable); }},
    {"cudaFuncSetAttribute", [](World&) { return allow_wide(64 << 10); }},
    {"cudaFuncGetAttributes", [](World&) { return wide_attributes(); }},
    {"cudaLaunchKernelExC", [](World& it) { return combine(it.numbers, 1, it.numbers, it.others, 8, it.stream); }},
    {"cudaIpcGetMemHandle",
     [](World& it) {
       cudaIpcMemHandle_t handle{};
       return cudaIpcGetMemHandle(&handle, it.numbers);
     }},
    {"cudaIpcOpenMemHandle",
     [](World& it) { return cudaIpcOpenMemHandle(&it.made, {}, cudaIpcMemLazyEnablePeerAccess); },
     cudaErrorInvalidResourceHandle},
    {"cudaIpcCloseMemHandle", [](World& it) { return cudaIpcCloseMemHandle(it.numbers); }, cudaErrorInvalidValue},
    {"cudaOccupancyMaxActiveBlocksPerMultiprocessor",
     [](World& it) {
       return cudaOccupancyMaxActiveBlocksPerMultiprocessor(&it.number, static_cast<const void*>(&it), 32, 0);
     },
     cudaErrorInvalidDeviceFunction},
};

}  // namespace

TEST_CASE("failing calls: the call that is to fail does, does nothing, and the next one works") {
  for (const Row& row : kRows) {
    emulation::restart({.devices = 2});
    int64_t before = 0;
    {
      const World world;
      REQUIRE(world.stand.error() == cudaSuccess);
      const auto calls = emulation::calls();
      const auto count = calls.find(row.function);
      before = count == calls.end() ? 0 : count->second;
    }
    for (const cudaError_t error : {cudaSuccess, cudaErrorDevicesUnavailable}) {
      INFO(row.function << ", error " << error);
      emulation::restart({.devices = 2, .failing = {{.function = row.function, .nth = before + 1, .error = error}}});
      World world;
      REQUIRE(world.stand.error() == cudaSuccess);
      const std::vector<std::string> held = emulation::not_given_back();
      const cudaError_t failed = row.call(world);
      CHECK(failed != cudaSuccess);
      if (error != cudaSuccess) CHECK(failed == error);
      CHECK(emulation::take_refusal().find(row.function) == 0);
      CHECK(cudaGetLastError() == failed);
      // A capture that goes on is a graph that is held.
      if (row.function != "cudaStreamEndCapture") CHECK(emulation::not_given_back() == held);
      CHECK(row.call(world) == row.otherwise);
      CHECK(world.stand.error() == cudaSuccess);
      CHECK(cudaDeviceSynchronize() == cudaSuccess);
      CHECK(emulation::take_reports().empty());
    }
  }
}

TEST_CASE("failing calls: from the n-th call on, when that is asked for") {
  emulation::restart({.failing = {{.function = "cudaMalloc", .nth = 3, .error = 0, .from_then_on = true}}});
  std::vector<cudaError_t> answers;
  void* memory = nullptr;
  for (int i = 0; i < 5; ++i) answers.push_back(cudaMalloc(&memory, 64));
  const std::vector<cudaError_t> expected = {cudaSuccess, cudaSuccess, cudaErrorMemoryAllocation,
                                             cudaErrorMemoryAllocation, cudaErrorMemoryAllocation};
  CHECK(answers == expected);
  CHECK(cudaMallocHost(&memory, 64) == cudaSuccess);
}

TEST_CASE("not given back: streams, events, graphs and memory are named, and no more when they are given back") {
  emulation::restart({});
  CHECK(emulation::not_given_back().empty());
  const auto count = [](std::string_view part) {
    int64_t found = 0;
    for (const std::string& line : emulation::not_given_back()) found += line.find(part) != std::string::npos ? 1 : 0;
    return found;
  };
  {
    World world;
    CHECK(count("stream") == 2);
    CHECK(count("event") == 2);
    CHECK(count("graph") == 2);
    CHECK(count("allocation") == 4);
    CHECK(count("pinned") == 2);
    CHECK(emulation::not_given_back().size() == 10);
    world.stand.note(cudaGraphExecDestroy(world.executable));
    world.stand.note(cudaGraphDestroy(world.graph));
    for (cudaEvent_t event : {world.first, world.second}) world.stand.note(cudaEventDestroy(event));
    for (cudaStream_t stream : {world.stream, world.other}) world.stand.note(cudaStreamDestroy(stream));
    for (float* memory : {world.numbers, world.others}) world.stand.note(cudaFree(memory));
    for (float* memory : {world.pinned, world.spare_pinned}) world.stand.note(cudaFreeHost(memory));
    CHECK(world.stand.error() == cudaSuccess);
  }
  CHECK(emulation::not_given_back().empty());
}

}  // namespace shardscope::planted_host
