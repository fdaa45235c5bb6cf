// The emulation's stand-in for the CUDA runtime, apart from streams: memory that comes and goes, copies, what calls
// refuse, and errors that stay.
#include <catch2/catch.hpp>

#include <cstdint>
#include <fstream>
#include <vector>

#include "tests/emulation/orders.hpp"
#include "tests/emulation/probes/probes.hpp"

namespace shardscope::test {
namespace {

/// Of this process, in memory.
int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all_pages = 0;
  int64_t resident_pages = 0;
  file >> all_pages >> resident_pages;
  return resident_pages * 4096;
}

}  // namespace

TEST_CASE("copies: an upload has read its source when it returns") {
  under_orders([](Stand& stand) {
    std::vector<int> values = {1, 2, 3};
    int* const on_device = stand.upload(values);
    values = {-1, -1, -1};
    CHECK(stand.download(on_device, 3) == std::vector<int>{1, 2, 3});
  });
}

TEST_CASE("memory: what was known of freed memory costs nothing, and a small allocation costs little") {
  emulation::restart({});
  Stand stand;
  const auto allocate_and_free = [&] {
    constexpr size_t kBytes = 64 << 10;
    void* memory = nullptr;
    stand.note(cudaMalloc(&memory, kBytes));
    stand.note(cudaMemset(memory, 0, kBytes));
    stand.note(cudaFree(memory));
  };
  allocate_and_free();
  int64_t before = resident_bytes();
  for (int i = 0; i < 1000; ++i) allocate_and_free();
  CHECK(resident_bytes() - before < int64_t{32} << 20);  // with what is known of it 1000 x 328 KiB

  before = resident_bytes();
  for (int i = 0; i < 1000; ++i) stand.zeros<std::byte>(100);
  stand.finish();
  CHECK(resident_bytes() - before < 1000 * int64_t{24 << 10});
  CHECK(stand.error() == cudaSuccess);
}

TEST_CASE("memory: addresses come again when a device's are used up, and never those in use") {
  emulation::restart({});
  Stand stand;
  int* const kept = stand.counting<int>(1000);
  void* first = nullptr;
  int again = 0;
  for (int i = 0; i < 100; ++i) {
    void* memory = nullptr;
    REQUIRE(cudaMalloc(&memory, size_t{3} << 30) == cudaSuccess);
    if (i == 0) first = memory;
    again += memory == first ? 1 : 0;
    REQUIRE(cudaMemset(memory, 0, 100) == cudaSuccess);
    REQUIRE(cudaFree(memory) == cudaSuccess);
    if (i == 50) CHECK(cudaMemset(first, 0, 100) == cudaErrorInvalidValue);  // freed
  }
  CHECK(again <= 3);
  CHECK(stand.download(kept, 1000)[999] == 999);
  CHECK(unread_reports() == "");
}

TEST_CASE("launch: what the runtime refuses, with its errors") {
  emulation::restart({});
  Stand stand;
  uint32_t* const out = stand.unwritten<uint32_t>(2048);
  const auto error = [&](dim3 grid, dim3 block, size_t shared_bytes = 0) {
    const cudaError_t returned = probes::identify(grid, block, out, shared_bytes);
    CHECK(cudaGetLastError() == returned);     // read once,
    CHECK(cudaGetLastError() == cudaSuccess);  // then gone
    return returned;
  };
  CHECK(error(1, 1025) == cudaErrorInvalidConfiguration);
  CHECK(error(1, dim3(32, 33)) == cudaErrorInvalidConfiguration);
  CHECK(error(1, dim3(1, 1, 65)) == cudaErrorInvalidConfiguration);
  CHECK(error(0, 32) == cudaErrorInvalidConfiguration);
  CHECK(error(dim3(1, 0), 32) == cudaErrorInvalidConfiguration);
  CHECK(error(1, 0) == cudaErrorInvalidConfiguration);
  CHECK(error(1, 32, 48 * 1024 + 1) == cudaErrorInvalidValue);
  CHECK(error(1, 32, 48 * 1024) == cudaSuccess);
  CHECK(probes::allow_identify_shared_bytes(100 * 1024) == cudaSuccess);
  CHECK(error(1, 32, 100 * 1024) == cudaSuccess);
  CHECK(error(1, 32, 100 * 1024 + 1) == cudaErrorInvalidValue);
  CHECK(probes::allow_identify_shared_bytes(1024 * 1024) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(error(2, 1024) == cudaSuccess);
  stand.finish();
  CHECK(stand.error() == cudaSuccess);
  CHECK(unread_reports() == "");
}

TEST_CASE("launch: more shared memory is allowed to a kernel on one device, until a restart") {
  constexpr size_t kBytes = 100 << 10;
  emulation::restart({.devices = 2});
  Stand stand;
  CHECK(probes::allow_identify_shared_bytes(kBytes) == cudaSuccess);
  CHECK(probes::identify(1, 32, stand.unwritten<uint32_t>(32), kBytes) == cudaSuccess);
  CHECK(cudaSetDevice(1) == cudaSuccess);
  CHECK(probes::identify(1, 32, stand.unwritten<uint32_t>(32), kBytes) == cudaErrorInvalidValue);
  CHECK(probes::allow_identify_shared_bytes(kBytes) == cudaSuccess);
  CHECK(probes::identify(1, 32, stand.unwritten<uint32_t>(32), kBytes) == cudaSuccess);
  emulation::restart({});
  Stand after;
  CHECK(probes::identify(1, 32, after.unwritten<uint32_t>(32), kBytes) == cudaErrorInvalidValue);
}

TEST_CASE("calls: what the runtime refuses, with its errors") {
  emulation::restart({.devices = 2});
  const auto refused = [](cudaError_t returned, cudaError_t expected) {
    CHECK(returned == expected);
    CHECK(cudaPeekAtLastError() == expected);
    CHECK(cudaGetLastError() == expected);
    CHECK(cudaGetLastError() == cudaSuccess);
  };
  refused(cudaGetDeviceCount(nullptr), cudaErrorInvalidValue);
  refused(cudaGetDevice(nullptr), cudaErrorInvalidValue);
  refused(cudaDeviceGetAttribute(nullptr, cudaDevAttrWarpSize, 0), cudaErrorInvalidValue);
  refused(cudaDeviceCanAccessPeer(nullptr, 0, 1), cudaErrorInvalidValue);
  refused(cudaDriverGetVersion(nullptr), cudaErrorInvalidValue);
  refused(cudaRuntimeGetVersion(nullptr), cudaErrorInvalidValue);
  refused(cudaMalloc(static_cast<void**>(nullptr), 16), cudaErrorInvalidValue);
  refused(cudaMallocHost(static_cast<void**>(nullptr), 16), cudaErrorInvalidValue);
  refused(cudaStreamCreate(nullptr), cudaErrorInvalidValue);
  refused(cudaEventCreateWithFlags(nullptr, cudaEventDisableTiming), cudaErrorInvalidValue);
  refused(cudaLaunchKernelExC(nullptr, nullptr, nullptr), cudaErrorInvalidValue);

  cudaEvent_t event = nullptr;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
  CHECK(cudaEventRecord(event, nullptr) == cudaSuccess);
  CHECK(cudaSetDevice(1) == cudaSuccess);
  refused(cudaEventRecord(event, nullptr), cudaErrorInvalidResourceHandle);  // of the other device
  CHECK(cudaStreamWaitEvent(nullptr, event, 0) == cudaSuccess);              // which may wait for it
  CHECK(cudaEventSynchronize(event) == cudaSuccess);
}

TEST_CASE("errors: after a fault every call fails until a restart") {
  emulation::restart({});
  Stand stand;
  int* const words = stand.counting<int>(2);
  stand.finish();
  REQUIRE(stand.error() == cudaSuccess);
  CHECK(probes::trap(nullptr) == cudaSuccess);  // found when the stream runs
  CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
  CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
  CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
  CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, 16) == cudaErrorLaunchFailure);
  int word = 0;
  CHECK(cudaMemcpy(&word, words, sizeof word, cudaMemcpyDeviceToHost) == cudaErrorLaunchFailure);
  CHECK(probes::add(words, 1, words + 1, nullptr) == cudaErrorLaunchFailure);
  CHECK(emulation::take_reports().size() == 1);
  CHECK(emulation::take_reports().empty());

  emulation::restart({});
  Stand after;
  int* const fresh = after.counting<int>(2, 40);
  after.note(probes::add(fresh, 1, fresh + 1, nullptr));
  CHECK(after.download(fresh, 2) == std::vector<int>{40, 41});
  CHECK(after.error() == cudaSuccess);
  CHECK(unread_reports() == "");
}

}  // namespace shardscope::test
