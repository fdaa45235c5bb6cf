// What the stand-in runtime answers a host: devices and what they can, memory, polling, time; and what a test may
// order: calls that fail, devices that are hidden, peer access that is not there.
#include <catch2/catch.hpp>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/emulation/orders.hpp"
#include "tests/emulation/planted_host/host_stand.hpp"
#include "tests/emulation/processes.hpp"

namespace shardscope::planted_host {
namespace {

using emulation::FailingCall;
using emulation::Policy;

int attribute(cudaDeviceAttr which, int device = 0) {
  int value = -1;
  CHECK(cudaDeviceGetAttribute(&value, which, device) == cudaSuccess);
  return value;
}

}  // namespace

TEST_CASE("devices: each model has the properties of the real one") {
  struct Facts {
    const char* key;
    const char* name;
    int major;
    int multiprocessors;
    int shared_bytes_per_block;
    int shared_bytes_per_multiprocessor;
  };
  // CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; the data sheets.
  const Facts facts = GENERATE(Facts{"a100", "NVIDIA A100-SXM4-80GB", 8, 108, 163 << 10, 164 << 10},
                               Facts{"h100", "NVIDIA H100 80GB HBM3", 9, 132, 227 << 10, 228 << 10},
                               Facts{"h200", "NVIDIA H200", 9, 132, 227 << 10, 228 << 10});
  INFO(facts.key);
  emulation::restart({.devices = 2, .model = facts.key});
  cudaDeviceProp properties{};
  REQUIRE(cudaGetDeviceProperties(&properties, 1) == cudaSuccess);
  CHECK(std::string(properties.name) == facts.name);
  CHECK(properties.major == facts.major);
  CHECK(properties.minor == 0);
  CHECK(properties.multiProcessorCount == facts.multiprocessors);
  CHECK(properties.sharedMemPerBlockOptin == static_cast<size_t>(facts.shared_bytes_per_block));
  CHECK(attribute(cudaDevAttrMultiProcessorCount) == facts.multiprocessors);
  CHECK(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) == facts.shared_bytes_per_block);
  CHECK(attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor) == facts.shared_bytes_per_multiprocessor);
  CHECK(attribute(cudaDevAttrComputeCapabilityMajor) == facts.major);
  char bus_id[16] = {};
  CHECK(cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), 1) == cudaSuccess);
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned device = 0;
  CHECK(std::sscanf(bus_id, "%x:%x:%x.0", &domain, &bus, &device) == 3);
  CHECK(static_cast<int>(bus) == properties.pciBusID);
  cudaDeviceProp first{};
  REQUIRE(cudaGetDeviceProperties(&first, 0) == cudaSuccess);
  CHECK(first.pciBusID != properties.pciBusID);
  CHECK(std::memcmp(first.uuid.bytes, properties.uuid.bytes, sizeof(first.uuid.bytes)) != 0);
}

TEST_CASE("devices: CUDA_VISIBLE_DEVICES hides and orders them, and none is an error of its own") {
  emulation::restart({.devices = 4});
  char all[4][16] = {};
  for (int device = 0; device < 4; ++device) {
    REQUIRE(cudaDeviceGetPCIBusId(all[device], sizeof(all[device]), device) == cudaSuccess);
  }
  setenv("CUDA_VISIBLE_DEVICES", "3,1", 1);
  emulation::restart({.devices = 4});
  int count = 0;
  CHECK(cudaGetDeviceCount(&count) == cudaSuccess);
  CHECK(count == 2);
  for (int device = 0; device < 2; ++device) {
    char seen[16] = {};
    CHECK(cudaDeviceGetPCIBusId(seen, sizeof(seen), device) == cudaSuccess);
    CHECK(std::string(seen) == all[device == 0 ? 3 : 1]);
  }
  setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
  emulation::restart({.devices = 4});
  count = 77;
  void* memory = nullptr;
  cudaStream_t stream = nullptr;
  CHECK(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
  CHECK(count == 77);
  CHECK(cudaMalloc(&memory, 100) == cudaErrorNoDevice);
  CHECK(cudaStreamCreate(&stream) == cudaErrorNoDevice);
  CHECK(combine(nullptr, 1, nullptr, nullptr, 1, nullptr) == cudaErrorNoDevice);
  CHECK(cudaGetLastError() == cudaErrorNoDevice);
  unsetenv("CUDA_VISIBLE_DEVICES");
  emulation::restart({});
}

TEST_CASE("devices: a driver that is older than the runtime, or none, is error 35, and only versions are told") {
  emulation::MachineTable table = emulation::make_table("h100", 1);
  table.cuda_driver_version = GENERATE(12020, 0);
  emulation::restart({.table = table});
  int count = 77;
  int version = -1;
  void* memory = nullptr;
  CHECK(cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver);
  CHECK(count == 77);
  CHECK(cudaMalloc(&memory, 100) == cudaErrorInsufficientDriver);
  CHECK(cudaDriverGetVersion(&version) == cudaSuccess);
  CHECK(version == table.cuda_driver_version);
  CHECK(cudaRuntimeGetVersion(&version) == cudaSuccess);
  CHECK(version == CUDART_VERSION);
  emulation::restart({});
}

TEST_CASE("memory: sizes that cannot be are no memory: those that wrapped around, too") {
  emulation::restart({});
  const size_t bytes = GENERATE(~size_t{0}, ~size_t{0} - 599, size_t{1} << 63, size_t{1} << 40);
  void* memory = &memory;
  CHECK(cudaMalloc(&memory, bytes) == cudaErrorMemoryAllocation);
  CHECK(memory == nullptr);
  CHECK(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault) == cudaErrorMemoryAllocation);
}

TEST_CASE("copies: the default direction is that of the addresses, and the host's memories may be both sides") {
  emulation::restart({});
  HostStand stand;
  float* const x = stand.filled(3);
  float* const pinned = stand.pinned<float>(HostStand::kCount, 0);
  std::vector<float> pageable(HostStand::kCount, 5);
  const cudaStream_t stream = stand.stream();
  stand.note(cudaMemcpyAsync(pinned, x, HostStand::kBytes, cudaMemcpyDefault, stream));
  stand.note(cudaStreamSynchronize(stream));
  CHECK(pinned[7] == 3);
  stand.note(cudaMemcpyAsync(x, pageable.data(), HostStand::kBytes, cudaMemcpyDefault, stream));
  CHECK(stand.holds(x, 5));
  stand.note(cudaMemcpyAsync(pinned, pageable.data(), HostStand::kBytes, cudaMemcpyHostToHost, stream));
  stand.note(cudaStreamSynchronize(stream));
  CHECK(pinned[7] == 5);
  CHECK(cudaMemcpyAsync(nullptr, pinned, 0, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  CHECK(stand.error() == cudaSuccess);
}

TEST_CASE("memory: what is free is told, runs out, and comes back") {
  constexpr size_t kMiB = size_t{1} << 20;
  emulation::restart({.device_memory_bytes = 64 * static_cast<int64_t>(kMiB)});
  size_t free_bytes = 0;
  size_t all_bytes = 0;
  CHECK(cudaMemGetInfo(&free_bytes, &all_bytes) == cudaSuccess);
  CHECK(all_bytes == 64 * kMiB);
  CHECK(free_bytes == 64 * kMiB);
  void* first = nullptr;
  void* second = nullptr;
  CHECK(cudaMalloc(&first, 40 * kMiB) == cudaSuccess);
  CHECK(cudaMalloc(&second, 25 * kMiB) == cudaErrorMemoryAllocation);
  CHECK(second == nullptr);
  CHECK(emulation::take_refusal() == "cudaMalloc: 26214400 bytes, of which 25165824 are free");
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);  // and is no fault that stays
  CHECK(cudaMemGetInfo(&free_bytes, &all_bytes) == cudaSuccess);
  CHECK(free_bytes == 24 * kMiB);
  CHECK(cudaFree(first) == cudaSuccess);
  CHECK(cudaMalloc(&second, 64 * kMiB) == cudaSuccess);
  CHECK(cudaFree(second) == cudaSuccess);
  emulation::restart({});
  CHECK(cudaMemGetInfo(&free_bytes, &all_bytes) == cudaSuccess);
  CHECK(all_bytes > size_t{79} << 30);  // that of the model
}

TEST_CASE("memory: what other processes of the table use is not free") {
  emulation::MachineTable table = emulation::make_table("h100", 1);
  table.gpus[0].processes.push_back({.pid = 7, .used_mib = 1024});
  emulation::restart({.table = table, .device_memory_bytes = int64_t{1025} << 20});
  size_t free_bytes = 0;
  size_t all_bytes = 0;
  CHECK(cudaMemGetInfo(&free_bytes, &all_bytes) == cudaSuccess);
  CHECK(free_bytes == size_t{1} << 20);
  CHECK(all_bytes == size_t{1025} << 20);
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, (size_t{1} << 20) + 1) == cudaErrorMemoryAllocation);
  CHECK(cudaMalloc(&memory, size_t{1} << 20) == cudaSuccess);
}

TEST_CASE("memory: a pointer tells what it is") {
  emulation::restart({.devices = 2});
  HostStand stand;
  stand.select(1);
  float* const device = stand.filled(1);
  float* const pinned = stand.pinned<float>(4, 0);
  float pageable = 0;
  cudaPointerAttributes attributes{};
  CHECK(cudaPointerGetAttributes(&attributes, device + 3) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeDevice);
  CHECK(attributes.device == 1);
  CHECK(attributes.devicePointer == device + 3);
  stand.select(0);
  CHECK(cudaPointerGetAttributes(&attributes, pinned) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeHost);
  CHECK(attributes.device == 1);  // the one that was current when it was made
  CHECK(attributes.hostPointer == pinned);
  CHECK(cudaPointerGetAttributes(&attributes, &pageable) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeUnregistered);
  CHECK(stand.error() == cudaSuccess);
}

TEST_CASE("polling: a host that only asks gets there, under both policies, and knows then what was done") {
  const Policy policy = GENERATE(Policy::kAtSynchronisation, Policy::kAtOnce, Policy::kWorker);
  for (uint64_t seed = 0; seed <= 10; ++seed) {
    INFO("seed " << seed);
    emulation::restart({.seed = seed, .policy = policy});
    HostStand stand;
    float* const x = stand.filled(1);
    float* const out = stand.pinned<float>(HostStand::kCount, 0);
    const cudaStream_t stream = stand.stream();
    const cudaEvent_t event = stand.event();
    for (int i = 0; i < 3; ++i) stand.combine(x, 1, x, x, stream);
    stand.note(cudaMemcpyAsync(out, x, HostStand::kBytes, cudaMemcpyDeviceToHost, stream));
    stand.note(cudaEventRecord(event, stream));
    cudaError_t state = cudaErrorNotReady;
    bool was_not_ready = false;
    while ((state = cudaEventQuery(event)) == cudaErrorNotReady) was_not_ready = true;
    CHECK(state == cudaSuccess);
    // That it was not ready is kept as an error until it is asked for, as by the real one.
    CHECK(cudaGetLastError() == (was_not_ready ? cudaErrorNotReady : cudaSuccess));
    CHECK(out[5] == 8);
    stand.combine(x, 0, x, x, stream);
    state = cudaErrorNotReady;
    while (state == cudaErrorNotReady) state = cudaStreamQuery(stream);
    CHECK(state == cudaSuccess);
    stand.note(cudaFree(x));
    stand.note(cudaFreeHost(out));
    stand.note(cudaEventDestroy(event));
    stand.note(cudaStreamDestroy(stream));
    CHECK(stand.error() == cudaSuccess);
    CHECK(test::unread_reports() == "");
    CHECK(emulation::not_given_back().empty());
  }
  emulation::restart({});
}

TEST_CASE(
    "worker: a kernel that waits for the host's flag goes on when the host has raised it, which waits for nothing") {
  for (uint64_t seed = 0; seed <= 5; ++seed) {
    emulation::restart({.seed = seed, .policy = Policy::kWorker});
    HostStand stand;
    uint32_t* const flag = stand.pinned<uint32_t>(1, 0);
    float* const x = stand.filled(1);
    const cudaStream_t stream = stand.stream();
    stand.note(wait_for_flag(flag, x, stream));
    CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
    __atomic_store_n(flag, 1u, __ATOMIC_RELEASE);
    stand.note(cudaStreamSynchronize(stream));
    CHECK(stand.first(x) == 2);
    CHECK(stand.error() == cudaSuccess);
    CHECK(test::unread_reports() == "");
  }
  emulation::restart({});
}

TEST_CASE("worker: several host threads call at the same time, each with a current device of its own") {
  emulation::restart({.seed = 3, .devices = 4, .policy = Policy::kWorker});
  std::vector<int> wrong(4, -1);
  std::vector<std::thread> threads;
  for (int device = 0; device < 4; ++device) {
    threads.emplace_back([device, &wrong] {
      HostStand stand;
      stand.select(device);
      float* const x = stand.filled(1);
      const cudaStream_t stream = stand.stream();
      for (int i = 0; i < 20; ++i) stand.combine(x, 2, x, x, stream);  // x = 3 x
      stand.note(cudaStreamSynchronize(stream));
      int current = -1;
      stand.note(cudaGetDevice(&current));
      const bool right = stand.holds(x, 17) && current == device;  // 3^20 mod 32
      stand.note(cudaStreamDestroy(stream));
      wrong[static_cast<size_t>(device)] = right && stand.error() == cudaSuccess ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
  CHECK(test::unread_reports() == "");
  emulation::restart({});
}

TEST_CASE("worker: a host that launches all the time is not taken for a kernel that runs meanwhile") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    emulation::restart({.seed = seed, .multiprocessors = 2, .policy = Policy::kWorker});
    HostStand stand;
    float* const x = stand.filled(1);
    float* const y = stand.filled(0);
    const cudaStream_t streams[] = {stand.stream(), stand.stream()};
    for (int i = 0; i < 200; ++i) {
      stand.combine(x, 0, x, x, streams[0]);
      stand.combine(y, 1, y, y, streams[1]);
    }
    stand.finish();
    CHECK(stand.first(x) == 1);
    CHECK(stand.error() == cudaSuccess);
    CHECK(test::unread_reports() == "");
  }
  emulation::restart({});
}

TEST_CASE("at once: a device that is faster than the host has done everything by the time that a call returns") {
  emulation::restart({.policy = Policy::kAtOnce});
  HostStand stand;
  float* const x = stand.filled(1);
  float* const out = stand.pinned<float>(HostStand::kCount, 0);
  const cudaStream_t stream = stand.stream();
  stand.combine(x, 1, x, x, stream);
  stand.note(cudaMemcpyAsync(out, x, HostStand::kBytes, cudaMemcpyDeviceToHost, stream));
  CHECK(out[3] == 2);
  // Too late to fill in what a kernel reads.
  out[3] = 7;
  stand.combine(out, 1, out, x, stream);
  out[3] = 9;
  stand.note(cudaStreamSynchronize(stream));
  CHECK(stand.first(x + 3) == 14);
  // A kernel that waits for the host is not waited for.
  uint32_t* const flag = stand.pinned<uint32_t>(1, 0);
  stand.note(wait_for_flag(flag, x, stream));
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  *flag = 1;
  stand.note(cudaStreamSynchronize(stream));
  CHECK(stand.first(x) == 2);
  CHECK(stand.error() == cudaSuccess);
}

TEST_CASE("time: a host that polls for a while does not use up the time that a kernel allows itself") {
  emulation::restart({});
  HostStand stand;
  uint32_t* const flag = stand.pinned<uint32_t>(1, 0);
  float* const x = stand.filled(1);
  const cudaStream_t stream = stand.stream();
  stand.note(wait_for_flag(flag, x, stream));  // a minute at most
  for (int i = 0; i < 200; ++i) REQUIRE(cudaStreamQuery(stream) == cudaErrorNotReady);
  *flag = 1;
  stand.note(cudaStreamSynchronize(stream));
  CHECK(stand.first(x) == 2);
  CHECK(test::unread_reports() == "");
}

TEST_CASE(
    "time: a kernel that spins for ever is told and ends the process, or the machine, though the host only asks") {
  const std::vector<test::Outcome> outcomes = test::run_in_processes(1, {.seconds_to_end = 1}, [](test::Rank& rank) {
    HostStand stand;
    uint32_t* const flag = stand.pinned<uint32_t>(1, 0);
    float* const x = stand.filled(1);
    const cudaStream_t stream = stand.stream();
    stand.note(spin(flag, x, stream));
    cudaError_t state = cudaErrorNotReady;
    while (state == cudaErrorNotReady) state = cudaStreamQuery(stream);
    rank.expect(state == cudaErrorLaunchTimeout, "another error");
    rank.expect(test::unread_reports().find("no progress") == 0, "another report");
  });
  REQUIRE(outcomes.size() == 1);
  INFO(outcomes[0].description());
  if (emulation::checked()) {
    CHECK(outcomes[0].end == test::Outcome::End::kReturned);
  } else {
    CHECK(outcomes[0].end == test::Outcome::End::kSignal);
    CHECK(outcomes[0].output.find("a kernel has not ended in time") != std::string::npos);
    CHECK(outcomes[0].output.find("host_kernels.cu") != std::string::npos);
  }
}

TEST_CASE("time: many short kernels in one wait are not taken for one that does not end") {
  emulation::restart({.seconds_to_end = 1});
  HostStand stand;
  float* const x = stand.filled(1);
  const cudaStream_t stream = stand.stream();
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(1500)) {
    for (int i = 0; i < 2000; ++i) stand.combine(x, 0, x, x, stream);
    stand.note(cudaStreamSynchronize(stream));
  }
  for (int i = 0; i < 60'000; ++i) stand.combine(x, 0, x, x, stream);
  stand.note(cudaStreamSynchronize(stream));
  CHECK(stand.first(x) == 1);
  CHECK(stand.error() == cudaSuccess);
}

TEST_CASE("time: events with timing tell how far apart they were on the machine's clock, in order") {
  emulation::restart({});
  HostStand stand;
  float* const x = stand.filled(1);
  const cudaStream_t stream = stand.stream();
  cudaEvent_t events[2] = {};
  for (cudaEvent_t& event : events) stand.note(cudaEventCreate(&event));
  stand.note(cudaEventRecord(events[0], stream));
  for (int i = 0; i < 4; ++i) stand.combine(x, 0, x, x, stream);
  stand.note(cudaEventRecord(events[1], stream));
  float milliseconds = -1;
  CHECK(cudaEventElapsedTime(&milliseconds, events[0], events[1]) == cudaErrorNotReady);
  stand.note(cudaEventSynchronize(events[1]));
  stand.note(cudaEventElapsedTime(&milliseconds, events[0], events[1]));
  CHECK(milliseconds > 0);
  CHECK(std::isfinite(milliseconds));
  const cudaEvent_t untimed = stand.event();
  stand.note(cudaEventRecord(untimed, stream));
  stand.finish();
  CHECK(stand.error() == cudaSuccess);
  CHECK(cudaEventElapsedTime(&milliseconds, events[0], untimed) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("failing: the n-th call of a function fails with what was ordered, the others do not") {
  emulation::restart({.failing = {{.function = "cudaMalloc", .nth = 2},
                                  {.function = "cudaStreamCreateWithFlags", .nth = 1, .error = 46},
                                  {.function = "cudaEventQuery", .nth = 2, .error = 719, .from_then_on = true}}});
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, 100) == cudaSuccess);
  CHECK(cudaMalloc(&memory, 100) == cudaErrorMemoryAllocation);
  CHECK(emulation::take_refusal() == "cudaMalloc: call 2 was to fail");
  CHECK(cudaMalloc(&memory, 100) == cudaSuccess);
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaErrorDevicesUnavailable);
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  cudaEvent_t event = nullptr;
  CHECK(cudaEventCreate(&event) == cudaSuccess);
  CHECK(cudaEventQuery(event) == cudaSuccess);
  CHECK(cudaEventQuery(event) == cudaErrorLaunchFailure);
  CHECK(cudaEventQuery(event) == cudaErrorLaunchFailure);
  CHECK(cudaMalloc(&memory, 100) == cudaSuccess);  // an ordered failure is no fault that stays
}

TEST_CASE("errors: a name and a meaning for each that is given, and a word for others") {
  CHECK(std::string(cudaGetErrorName(cudaErrorStreamCaptureUnjoined)) == "cudaErrorStreamCaptureUnjoined");
  CHECK(std::string(cudaGetErrorString(cudaErrorMemoryAllocation)) == "out of memory");
  CHECK(std::string(cudaGetErrorString(static_cast<cudaError_t>(12345))) == "unrecognized error code");
}

TEST_CASE("given back: what is not is told, one line each") {
  emulation::restart({});
  HostStand stand;
  CHECK(emulation::not_given_back().empty());
  float* const x = stand.unwritten<float>(16);
  const cudaStream_t stream = stand.stream();
  const cudaEvent_t event = stand.event();
  CHECK(emulation::not_given_back() ==
        std::vector<std::string>{"stream of device 0", "event", "allocation 1 (64 bytes, device 0)"});
  stand.note(cudaStreamDestroy(stream));
  stand.note(cudaEventDestroy(event));
  stand.note(cudaFree(x));
  CHECK(emulation::not_given_back().empty());
  CHECK(stand.error() == cudaSuccess);
}

}  // namespace shardscope::planted_host
