// What lies between kernels in the emulation: streams, events, devices, programmatic dependent launch, and waits with a
// limit.
#include <catch2/catch.hpp>

#include <cstdint>
#include <vector>

#include "tests/emulation/orders.hpp"
#include "tests/emulation/probes/probes.hpp"

namespace shardscope::test {
namespace {

using emulation::Fault;

cudaStream_t new_stream(Stand& stand) {
  cudaStream_t stream = nullptr;
  stand.note(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

}  // namespace

TEST_CASE("stream: kernels of one stream run in order") {
  under_orders([](Stand& stand) {
    int* const words = stand.zeros<int>(20);
    const cudaStream_t stream = new_stream(stand);
    stand.finish();
    for (int i = 0; i + 1 < 20; ++i) stand.note(probes::add(words + i, i, words + i + 1, stream));
    CHECK(stand.download(words, 20).back() == 18 * 19 / 2);
    stand.note(cudaStreamDestroy(stream));
  });
}

TEST_CASE("stream: kernels of two streams run at the same time") {
  under_orders([](Stand& stand) {
    uint32_t* const flags = stand.zeros<uint32_t>(2);
    uint32_t* const out = stand.zeros<uint32_t>(2);
    stand.finish();
    const cudaStream_t streams[] = {new_stream(stand), new_stream(stand)};
    stand.note(probes::converse(20, flags, flags + 1, out, streams[0]));
    stand.note(probes::converse(20, flags + 1, flags, out + 1, streams[1]));
    CHECK(stand.download(out, 2) == std::vector<uint32_t>{20, 20});
    for (const cudaStream_t stream : streams) stand.note(cudaStreamDestroy(stream));
  });
}

TEST_CASE("stream: two kernels of one stream that wait for each other make no progress") {
  emulation::restart({});
  Stand stand;
  uint32_t* const flags = stand.zeros<uint32_t>(2);
  uint32_t* const out = stand.zeros<uint32_t>(2);
  stand.note(probes::converse(20, flags, flags + 1, out, nullptr));
  stand.note(probes::converse(20, flags + 1, flags, out + 1, nullptr));
  stand.finish();
  CHECK(stand.error() == cudaErrorLaunchTimeout);
  const auto reports = emulation::take_reports();
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].fault == Fault::kNoProgress);
}

TEST_CASE("stream: an event orders two streams") {
  under_orders([](Stand& stand) {
    int* const words = stand.zeros<int>(3);
    stand.finish();
    const cudaStream_t first = new_stream(stand);
    const cudaStream_t second = new_stream(stand);
    cudaEvent_t event = nullptr;
    stand.note(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    stand.note(probes::add(words, 1, words + 1, first));
    stand.note(cudaEventRecord(event, first));
    stand.note(cudaStreamWaitEvent(second, event, 0));
    stand.note(probes::add(words + 1, 1, words + 2, second));
    stand.note(cudaStreamSynchronize(second));
    CHECK(stand.first(words + 2) == 2);
    stand.note(cudaEventDestroy(event));
    stand.note(cudaStreamDestroy(first));
    stand.note(cudaStreamDestroy(second));
  });
}

TEST_CASE("stream: an event that two streams recorded stands for the second record") {
  under_orders([](Stand& stand) {
    int* const words = stand.zeros<int>(4);
    stand.finish();
    const cudaStream_t second = new_stream(stand);
    const cudaStream_t first = new_stream(stand);  // later in turn
    const cudaStream_t waiting = new_stream(stand);
    cudaEvent_t event = nullptr;
    stand.note(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    stand.note(probes::add(words, 1, words + 1, first));
    stand.note(cudaEventRecord(event, first));
    stand.note(probes::add(words, 2, words + 2, second));
    stand.note(cudaEventRecord(event, second));
    stand.note(cudaStreamWaitEvent(waiting, event, 0));
    stand.note(cudaEventDestroy(event));
    stand.note(probes::add(words + 2, 1, words + 3, waiting));
    CHECK(stand.first(words + 3) == 3);
  });
}

TEST_CASE("stream: what is in a destroyed stream still runs, and synchronising the device waits for it") {
  under_orders([](Stand& stand) {
    int* const words = stand.zeros<int>(2);
    stand.finish();
    const cudaStream_t stream = new_stream(stand);
    stand.note(probes::add(words, 7, words + 1, stream));
    stand.note(cudaStreamDestroy(stream));
    CHECK(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
    CHECK(stand.first(words + 1) == 7);
  });
}

TEST_CASE("devices: kernels of several devices run at the same time and see each other's flags") {
  const int devices = GENERATE(2, 3, 8);
  under_orders(
      [devices](Stand& stand) {
        std::vector<uint32_t*> flags;
        std::vector<uint32_t*> out;
        for (int device = 0; device < devices; ++device) {
          stand.note(cudaSetDevice(device));
          for (int peer = 0; peer < devices; ++peer) {
            if (peer != device) stand.note(cudaDeviceEnablePeerAccess(peer, 0));
          }
          flags.push_back(stand.zeros<uint32_t>(1));
          out.push_back(stand.zeros<uint32_t>(1));
          stand.finish();
        }
        for (int device = 0; device < devices; ++device) {
          const auto d = static_cast<size_t>(device);
          stand.note(cudaSetDevice(device));
          stand.note(probes::converse(10, flags[d], flags[(d + 1) % flags.size()], out[d], nullptr));
        }
        for (int device = 0; device < devices; ++device) {
          stand.note(cudaSetDevice(device));
          CHECK(stand.first(out[static_cast<size_t>(device)]) == 10);
        }
      },
      {.devices = devices});
}

TEST_CASE("devices: their number is that of the options, and another one is refused") {
  emulation::restart({.devices = 3});
  int count = 0;
  CHECK(cudaGetDeviceCount(&count) == cudaSuccess);
  CHECK(count == 3);
  CHECK(cudaSetDevice(2) == cudaSuccess);
  int current = -1;
  CHECK(cudaGetDevice(&current) == cudaSuccess);
  CHECK(current == 2);
  CHECK(cudaSetDevice(3) == cudaErrorInvalidDevice);
  CHECK(cudaSetDevice(-1) == cudaErrorInvalidDevice);
  CHECK(cudaGetDevice(&current) == cudaSuccess);
  CHECK(current == 2);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("programmatic launch: the dependent kernel starts while its predecessor runs, and its wait sees all of it") {
  under_orders([](Stand& stand) {
    uint32_t* const flag = stand.zeros<uint32_t>(1);
    int* const words = stand.zeros<int>(2);
    stand.note(probes::wait_for_dependent(flag, words, nullptr));
    stand.note(probes::raise_before_wait(true, flag, words, words + 1, nullptr));
    CHECK(stand.download(words, 2) == std::vector<int>{1, 1});
  });
}

TEST_CASE("programmatic launch: a kernel launched otherwise does not start early") {
  emulation::restart({});
  Stand stand;
  uint32_t* const flag = stand.zeros<uint32_t>(1);
  int* const words = stand.zeros<int>(2);
  stand.note(probes::wait_for_dependent(flag, words, nullptr));
  stand.note(probes::raise_before_wait(false, flag, words, words + 1, nullptr));
  stand.finish();
  const auto reports = emulation::take_reports();
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].fault == Fault::kNoProgress);
}

TEST_CASE("wait_at_least: returns what it waited for, gives up at its limit, and when told to") {
  under_orders([](Stand& stand) {
    uint32_t* const flag = stand.upload(std::vector<uint32_t>{5});
    int* const out = stand.upload(std::vector<int>{7, 7, 7, 7, 7});
    uint32_t* abort_word = nullptr;
    stand.note(cudaHostAlloc(reinterpret_cast<void**>(&abort_word), sizeof(uint32_t), cudaHostAllocMapped));
    if (abort_word == nullptr) return;
    *abort_word = 0;
    constexpr uint64_t kMinute = uint64_t{60} * 1000 * 1000 * 1000;
    stand.note(probes::wait_with_limit(flag, 5, abort_word, kMinute, out, nullptr));
    stand.note(
        probes::wait_with_limit(flag, 6, abort_word, kMinute, out + 1, nullptr));  // a minute of the device's clock
    stand.note(probes::wait_with_limit(flag, 0xFFFFFFF0u, abort_word, kMinute, out + 2, nullptr));  // 5 is past it
    stand.note(probes::wait_with_limit(flag, 6, nullptr, kMinute, out + 4, nullptr));  // without an abort word
    stand.finish();
    *abort_word = 1;
    stand.note(probes::wait_with_limit(flag, 6, abort_word, kMinute, out + 3, nullptr));
    CHECK(stand.download(out, 5) == std::vector<int>{1, 0, 1, 0, 0});
    stand.note(cudaFreeHost(abort_word));
  });
}

TEST_CASE("streams: work waits for a call that synchronises, and a launch keeps its arguments") {
  emulation::restart({});
  Stand stand;
  int* const words = stand.zeros<int>(4);
  for (int i = 0; i < 3; ++i) {
    int increment = 10 * (i + 1);
    stand.note(probes::add(words, increment, words + 1 + i, nullptr));
    increment = -1;
  }
  CHECK(stand.download(words, 4) == std::vector<int>{0, 10, 20, 30});
  CHECK(unread_reports() == "");
}

}  // namespace shardscope::test
