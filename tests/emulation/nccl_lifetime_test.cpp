// What goes before something that needs it is found by the NCCL stand-in: graphs and windows that outlive their
// communicator, memory that is freed while it is registered or used. Each beside what is right.
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/emulation/emulation.hpp"
#include "tests/emulation/nccl_stand.hpp"

namespace shardscope::test {
namespace {

struct LifetimeSlip {
  const char* name;
  std::vector<std::string> words;
  std::function<ncclResult_t(const DeviceRanks&, bool planted)> last_call;
};

/// An executable graph with an operation of rank 0 (of one).
cudaGraphExec_t graph_of(const DeviceRanks& ranks, const Part& part) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  need(cudaStreamBeginCapture(ranks.streams[0], cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  need(part.call(ranks.communicators[0], ranks.streams[0]), "the collective");
  need(cudaStreamEndCapture(ranks.streams[0], &graph), "cudaStreamEndCapture");
  need(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  need(cudaGraphDestroy(graph), "cudaGraphDestroy");
  return executable;
}

ncclResult_t with_graph(const DeviceRanks& ranks, bool planted, ncclResult_t (*last)(ncclComm_t)) {
  const Part part({.count = 7}, 0, 1);
  const cudaGraphExec_t executable = graph_of(ranks, part);
  need(cudaGraphLaunch(executable, ranks.streams[0]), "cudaGraphLaunch");
  CHECK(part.difference() == "");
  if (!planted) need(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
  return last(ranks.communicators[0]);
}

struct Windowed {
  explicit Windowed(const DeviceRanks& ranks) {
    need(ncclMemAlloc(&memory, 8192), "ncclMemAlloc");
    need(cudaMemset(memory, 0, 8192), "cudaMemset");
    need(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    need(ncclCommWindowRegister(ranks.communicators[0], memory, 8192, &window, NCCL_WIN_COLL_SYMMETRIC),
         "ncclCommWindowRegister");
  }
  void* memory = nullptr;
  ncclWindow_t window = nullptr;
};

const std::vector<LifetimeSlip>& lifetime_slips() {
  static const std::vector<LifetimeSlip> slips = {
      {"destroyed before its graph",
       {"rank 0 of 1", "destroyed while a graph"},
       [](const DeviceRanks& ranks, bool planted) { return with_graph(ranks, planted, ncclCommDestroy); }},
      {"finalised before its graph",
       {"finalised while a graph"},
       [](const DeviceRanks& ranks, bool planted) { return with_graph(ranks, planted, ncclCommFinalize); }},
      {"aborted before its graph",
       {"aborted while a graph"},
       [](const DeviceRanks& ranks, bool planted) { return with_graph(ranks, planted, ncclCommAbort); }},
      {"memory freed before its window",
       {"8192 bytes", "registered as a window", "rank 0 of 1"},
       [](const DeviceRanks& ranks, bool planted) {
         const Windowed it(ranks);
         if (!planted) need(ncclCommWindowDeregister(ranks.communicators[0], it.window), "ncclCommWindowDeregister");
         return ncclMemFree(it.memory);
       }},
      {"memory freed before its registration",
       {"100 bytes", "registered as a buffer"},
       [](const DeviceRanks& ranks, bool planted) {
         void* memory = nullptr;
         void* handle = nullptr;
         need(ncclMemAlloc(&memory, 8192), "ncclMemAlloc");
         auto* const inside = static_cast<std::byte*>(memory) + 500;
         need(ncclCommRegister(ranks.communicators[0], inside, 100, &handle), "ncclCommRegister");
         if (!planted) need(ncclCommDeregister(ranks.communicators[0], handle), "ncclCommDeregister");
         return ncclMemFree(memory);
       }},
      {"destroyed before its window",
       {"destroyed while 8192 bytes", "window"},
       [](const DeviceRanks& ranks, bool planted) {
         const Windowed it(ranks);
         if (!planted) need(ncclCommWindowDeregister(ranks.communicators[0], it.window), "ncclCommWindowDeregister");
         return ncclCommDestroy(ranks.communicators[0]);
       }},
      {"window gone before its operation was done",
       {"window", "deregistered while operations"},
       [](const DeviceRanks& ranks, bool planted) {
         const Windowed it(ranks);
         need(ncclAllReduce(it.memory, it.memory, 10, ncclInt8, ncclSum, ranks.communicators[0], ranks.streams[0]),
              "ncclAllReduce");
         if (!planted) ranks.synchronise();
         return ncclCommWindowDeregister(ranks.communicators[0], it.window);
       }},
  };
  return slips;
}

}  // namespace

TEST_CASE("nccl faults: what goes before that which needs it is refused and reported") {
  for (const LifetimeSlip& slip : lifetime_slips()) {
    for (const bool planted : {true, false}) {
      INFO(slip.name << (planted ? ", planted" : ", sound"));
      emulation::restart({});
      const DeviceRanks ranks(1);
      CHECK(slip.last_call(ranks, planted) == (planted ? ncclInvalidUsage : ncclSuccess));
      const std::vector<emulation::Report> reports = emulation::take_reports();
      REQUIRE(reports.size() == (planted ? 1 : 0));
      if (!planted) continue;
      CHECK(reports[0].fault == emulation::Fault::kLifetime);
      CHECK(missing(reports[0].message, slip.words) == "");
      CHECK(missing(emulation::take_refusal(), {slip.words.back()}) == "");
    }
  }
}

TEST_CASE("nccl faults: memory that is registered and freed by cudaFree is reported, and ends the machine") {
  const bool as_window = GENERATE(false, true);
  const bool planted = GENERATE(true, false);
  INFO((as_window ? "window" : "buffer") << (planted ? ", planted" : ", sound"));
  emulation::restart({});
  const DeviceRanks ranks(1);
  const ncclComm_t communicator = ranks.communicators[0];
  void* memory = nullptr;
  void* neighbour = nullptr;
  void* registered = nullptr;
  ncclWindow_t window = nullptr;
  need(cudaMalloc(&memory, 3 * 4096), "cudaMalloc");
  need(cudaMalloc(&neighbour, 4096), "cudaMalloc");
  // Somewhere within the allocation, which need not begin at a multiple of a window's alignment.
  const auto inside = (reinterpret_cast<uintptr_t>(memory) / 4096 + 1) * 4096;
  auto* const part = reinterpret_cast<void*>(inside);  // NOLINT(performance-no-int-to-ptr)
  if (as_window) {
    need(ncclCommWindowRegister(communicator, part, 4096, &window, NCCL_WIN_DEFAULT), "ncclCommWindowRegister");
  } else {
    need(ncclCommRegister(communicator, part, 4096, &registered), "ncclCommRegister");
  }
  CHECK(cudaFree(neighbour) == cudaSuccess);
  if (!planted && as_window) need(ncclCommWindowDeregister(communicator, window), "ncclCommWindowDeregister");
  if (!planted && !as_window) need(ncclCommDeregister(communicator, registered), "ncclCommDeregister");
  cudaFree(memory);
  CHECK((cudaDeviceSynchronize() == cudaSuccess) == !planted);
  const std::vector<emulation::Report> reports = emulation::take_reports();
  REQUIRE(reports.size() == (planted ? 1 : 0));
  if (!planted) return;
  CHECK(reports[0].fault == emulation::Fault::kLifetime);
  const char* const what =
      as_window ? "registered as a window of rank 0 of 1" : "registered as a buffer of rank 0 of 1";
  CHECK(missing(reports[0].message, {"(12288 bytes", "is freed, of which 4096 bytes", what, "deregister first"}) == "");
}

TEST_CASE("nccl faults: a buffer that is freed before its operation runs is found") {
  for (const bool planted : {true, false}) {
    emulation::restart({});
    const DeviceRanks ranks(1);
    auto part = std::make_unique<Part>(Collective{.count = 100}, 0, 1);
    const cudaGraphExec_t executable = graph_of(ranks, *part);
    if (planted) part.reset();
    need(cudaGraphLaunch(executable, ranks.streams[0]), "cudaGraphLaunch");
    const cudaError_t error = cudaStreamSynchronize(ranks.streams[0]);
    CHECK(error == (planted ? cudaErrorIllegalAddress : cudaSuccess));
    CHECK((missing(all_reports(), {"use after free", "ncclAllReduce"}) == "") == planted);
  }
}

}  // namespace shardscope::test
