// Slips that the NCCL stand-in finds when operations run: ranks that do not do the same, streams without an order. Each
// beside what is right. What goes too early: nccl_lifetime_test.cpp.
#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/emulation/emulation.hpp"
#include "tests/emulation/example/scale.hpp"
#include "tests/emulation/nccl_stand.hpp"
#include "tests/emulation/seeds.hpp"

namespace shardscope::test {
namespace {

/// The first asynchronous error of the communicator, or success if there is none after a while.
ncclResult_t asynchronous_error(ncclComm_t communicator) {
  ncclResult_t error = ncclSuccess;
  for (int i = 0; i < 1000 && error == ncclSuccess; ++i) {
    need(ncclCommGetAsyncError(communicator, &error), "ncclCommGetAsyncError");
  }
  return error;
}

/// What each of two ranks calls, one after another.
struct Mismatch {
  const char* name;
  std::vector<Collective> calls[2];
  std::vector<std::string> words;
};

constexpr auto kAllReduce = Operation::kAllReduce;
constexpr auto kAllGather = Operation::kAllGather;
constexpr auto kBroadcast = Operation::kBroadcast;

const std::vector<Mismatch>& mismatches() {
  static const std::vector<Mismatch> all = {
      {"nothing wrong",
       {{{.count = 9}, {.operation = kAllGather, .count = 5}}, {{.count = 9}, {.operation = kAllGather, .count = 5}}},
       {}},
      {"the operation",
       {{{.operation = kAllReduce, .count = 9}}, {{.operation = kAllGather, .count = 9}}},
       {"operation 0", "ncclAllReduce of 9", "ncclAllGather of 9"}},
      {"the count", {{{.count = 9}}, {{.count = 8}}}, {"operation 0", "of 9 ncclFloat32", "of 8 ncclFloat32"}},
      {"no elements", {{{.count = 9}}, {{.count = 0}}}, {"operation 0", "of 9 ncclFloat32", "of 0 ncclFloat32"}},
      {"the type",
       {{{.type = ncclFloat16, .count = 9}}, {{.type = ncclBfloat16, .count = 9}}},
       {"of 9 ncclFloat16", "of 9 ncclBfloat16"}},
      {"the reduction",
       {{{.reduction = ncclMax, .count = 9}}, {{.reduction = ncclMin, .count = 9}}},
       {"ncclMax", "ncclMin"}},
      {"the root",
       {{{.operation = kBroadcast, .count = 9, .root = 0}}, {{.operation = kBroadcast, .count = 9, .root = 1}}},
       {"from rank 0", "from rank 1"}},
      {"the order of two",
       {{{.count = 9}, {.count = 9}, {.operation = kAllGather, .count = 5}},
        {{.count = 9}, {.operation = kAllGather, .count = 5}, {.count = 9}}},
       {"operation 1", "ncclAllReduce of 9", "ncclAllGather of 5"}},
  };
  return all;
}

}  // namespace

TEST_CASE("nccl faults: ranks that do not do the same are all told what both called") {
  for (const Mismatch& mismatch : mismatches()) {
    for (const uint64_t seed : seeds_to_try(5)) {
      INFO(mismatch.name << ", seed " << seed);
      emulation::restart({.seed = seed, .devices = 2});
      const DeviceRanks ranks(2);
      std::vector<std::unique_ptr<Part>> parts;
      ranks.grouped([&](int rank) {
        for (const Collective& collective : mismatch.calls[rank]) {
          parts.push_back(std::make_unique<Part>(collective, rank, 2));
          need(parts.back()->call(ranks.communicators[static_cast<size_t>(rank)],
                                  ranks.streams[static_cast<size_t>(rank)]),
               "the collective");
        }
      });
      if (mismatch.words.empty()) {
        ranks.synchronise();
        for (const ncclComm_t communicator : ranks.communicators)
          CHECK(asynchronous_error(communicator) == ncclSuccess);
        for (const auto& part : parts) CHECK(part->difference() == "");
        CHECK(all_reports() == "");
        continue;
      }
      std::vector<std::string> words = mismatch.words;
      words.insert(words.end(), {"rank 0 (pid ", "rank 1 (pid "});
      for (const ncclComm_t communicator : ranks.communicators) {
        CHECK(asynchronous_error(communicator) == ncclInvalidUsage);
        CHECK(missing(ncclGetLastError(communicator), words) == "");
        CHECK(ncclCommDestroy(communicator) == ncclInvalidUsage);
        CHECK(missing(emulation::take_refusal(), {"can only be aborted"}) == "");
      }
      const std::vector<emulation::Report> reports = emulation::take_reports();
      CHECK(reports.size() == 2);
      for (const emulation::Report& report : reports) {
        CHECK(report.fault == emulation::Fault::kRankMismatch);
        CHECK(missing(report.message, words) == "");
      }
      CHECK(cudaStreamQuery(ranks.streams[0]) == cudaErrorNotReady);
      for (const ncclComm_t communicator : ranks.communicators) CHECK(ncclCommAbort(communicator) == ncclSuccess);
      ranks.synchronise();
    }
  }
}

TEST_CASE("nccl faults: a rank of the process that is not in the group is waited for in vain, and named") {
  const bool planted = GENERATE(true, false);
  emulation::restart({.devices = 2});
  const DeviceRanks ranks(2);
  need(cudaSetDevice(0), "cudaSetDevice");
  const Part first({.count = 12}, 0, 2);
  need(cudaSetDevice(1), "cudaSetDevice");
  const Part second({.count = 12}, 1, 2);
  need(ncclGroupStart(), "ncclGroupStart");
  need(first.call(ranks.communicators[0], ranks.streams[0]), "ncclAllReduce");
  if (!planted) need(second.call(ranks.communicators[1], ranks.streams[1]), "ncclAllReduce");
  need(ncclGroupEnd(), "ncclGroupEnd");
  const cudaError_t error = cudaStreamSynchronize(ranks.streams[0]);
  CHECK(error == (planted ? cudaErrorLaunchTimeout : cudaSuccess));
  const std::string reports = all_reports();
  if (planted) {
    CHECK(missing(reports, {"no progress", "rank 1 (pid ", "operation 0, ncclAllReduce of 12 ncclFloat32"}) == "");
  } else {
    CHECK(reports == "");
  }
}

TEST_CASE("nccl faults: of a rank that is not in the group, and two that differ, the report says both") {
  emulation::restart({.devices = 3});
  const DeviceRanks ranks(3);
  const auto parts = parts_of(ranks, {.count = 12});
  need(cudaSetDevice(1), "cudaSetDevice");
  const Part other({.count = 13}, 1, 3);
  need(ncclGroupStart(), "ncclGroupStart");
  need(parts[0]->call(ranks.communicators[0], ranks.streams[0]), "ncclAllReduce");
  need(other.call(ranks.communicators[1], ranks.streams[1]), "ncclAllReduce");
  need(ncclGroupEnd(), "ncclGroupEnd");
  CHECK(cudaStreamSynchronize(ranks.streams[0]) == cudaErrorLaunchTimeout);
  const std::string reports = all_reports();
  CHECK(missing(reports, {"no progress", "rank 2 (pid ", "ncclAllReduce of 12", "ncclAllReduce of 13"}) == "");
}

TEST_CASE("nccl faults: an abort ends what waits, writes nothing, and the other rank is told") {
  for (const uint64_t seed : seeds_to_try(5)) {
    emulation::restart({.seed = seed, .devices = 2});
    const DeviceRanks ranks(2);
    need(cudaSetDevice(0), "cudaSetDevice");
    const Part part({.count = 12}, 0, 2);
    need(part.call(ranks.communicators[0], ranks.streams[0]), "ncclAllReduce");
    CHECK(cudaStreamQuery(ranks.streams[0]) == cudaErrorNotReady);
    CHECK(ncclCommAbort(ranks.communicators[0]) == ncclSuccess);
    CHECK(cudaStreamSynchronize(ranks.streams[0]) == cudaSuccess);
    const std::vector<double> result = part.result();
    for (const double value : result) CHECK(value != value);  // as nobody has written it: NaN
    CHECK(asynchronous_error(ranks.communicators[1]) == ncclRemoteError);
    CHECK(missing(ncclGetLastError(ranks.communicators[1]), {"rank 0 (pid ", "has aborted"}) == "");
    int count = 0;
    CHECK(ncclCommCount(ranks.communicators[1], &count) == ncclRemoteError);
    CHECK(ncclCommAbort(ranks.communicators[1]) == ncclSuccess);
    CHECK(all_reports() == "");
  }
}

TEST_CASE("nccl faults: what an abort ends or keeps from beginning has touched no memory") {
  for (const uint64_t seed : seeds_to_try(10)) {
    INFO("seed " << seed);
    emulation::restart({.seed = seed, .devices = 2});
    const DeviceRanks ranks(2);
    need(cudaSetDevice(0), "cudaSetDevice");
    const Part begun({.count = 12}, 0, 2);
    const Part waiting({.count = 12}, 0, 2);
    const Part copy({.count = 12}, 0, 1);
    cudaStream_t other = nullptr;
    need(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    need(begun.call(ranks.communicators[0], ranks.streams[0]), "ncclAllReduce");
    need(waiting.call(ranks.communicators[0], ranks.streams[0]), "ncclAllReduce");
    CHECK(cudaStreamQuery(ranks.streams[0]) == cudaErrorNotReady);
    CHECK(ncclCommAbort(ranks.communicators[0]) == ncclSuccess);
    // What has not begun never will: its memory is the host's again, without an order.
    need(cudaMemsetAsync(waiting.received(), 0, 48, other), "cudaMemsetAsync");
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(all_reports() == "");
    // Nobody has written the other result.
    need(cuda::scale(static_cast<const float*>(begun.received()), 12, 1, static_cast<float*>(copy.received()), other),
         "scale");
    CHECK((cudaDeviceSynchronize() != cudaSuccess) == emulation::checked());
    CHECK((missing(all_reports(), {"uninitialised", "scale_kernel"}) == "") == emulation::checked());
  }
}

TEST_CASE("nccl faults: a stream that reads the result without an order is found in the checked mode") {
  for (const bool planted : {true, false}) {
    for (const uint64_t seed : seeds_to_try(5)) {
      INFO((planted ? "planted, seed " : "sound, seed ") << seed);
      emulation::restart({.seed = seed});
      const DeviceRanks ranks(1);
      const Part part({.count = 100}, 0, 1);
      cudaStream_t other = nullptr;
      cudaEvent_t done = nullptr;
      void* copy = nullptr;
      need(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
      need(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), "cudaEventCreateWithFlags");
      need(cudaMalloc(&copy, 400), "cudaMalloc");
      need(part.call(ranks.communicators[0], ranks.streams[0]), "ncclAllReduce");
      need(cudaEventRecord(done, ranks.streams[0]), "cudaEventRecord");
      if (!planted) need(cudaStreamWaitEvent(other, done, 0), "cudaStreamWaitEvent");
      if (seed % 2 == 0) {
        need(cudaMemcpyAsync(copy, part.received(), 400, cudaMemcpyDeviceToDevice, other), "cudaMemcpyAsync");
      } else {
        need(cuda::scale(static_cast<const float*>(part.received()), 100, 1, static_cast<float*>(copy), other),
             "scale");
      }
      const cudaError_t error = cudaDeviceSynchronize();
      const std::string reports = all_reports();
      if (planted && emulation::checked()) {
        CHECK(error != cudaSuccess);
        // Which of the two came second depends on the order; the other one is named then. Or it read what nobody wrote.
        CHECK((missing(reports, {"ncclAllReduce", "race"}) == "" || missing(reports, {"uninitialised"}) == ""));
      } else {
        CHECK(error == cudaSuccess);
        CHECK(reports == "");
      }
    }
  }
}

TEST_CASE("nccl faults: the checked program is checked") {
  // A kernel library that nothing calls would not be loaded, and the checker not be there.
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").filename().string();
  CHECK(emulation::checked() == program.ends_with("_checked"));
}

}  // namespace shardscope::test
