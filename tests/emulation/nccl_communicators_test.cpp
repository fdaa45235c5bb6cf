// The NCCL stand-in with ranks as devices of one process: communicators of right programs, from their initialisation to
// their end, and their windows.
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/emulation/emulation.hpp"
#include "tests/emulation/fakes/nccl/nccl_fake.hpp"
#include "tests/emulation/nccl_stand.hpp"
#include "tests/emulation/seeds.hpp"

namespace shardscope::test {
namespace {

emulation::Options machine(int devices, uint64_t seed = 0) {
  return {.seed = seed, .devices = devices};
}

}  // namespace

TEST_CASE("nccl: communicators say what they are, and are made of a list of devices") {
  emulation::restart(machine(4));
  const int devices[] = {2, 0, 3};
  ncclComm_t communicators[3] = {};
  need(ncclCommInitAll(communicators, 3, devices), "ncclCommInitAll");
  for (int rank = 0; rank < 3; ++rank) {
    int value = -1;
    need(ncclCommCount(communicators[rank], &value), "ncclCommCount");
    CHECK(value == 3);
    need(ncclCommUserRank(communicators[rank], &value), "ncclCommUserRank");
    CHECK(value == rank);
    need(ncclCommCuDevice(communicators[rank], &value), "ncclCommCuDevice");
    CHECK(value == devices[rank]);
    ncclResult_t error = ncclInternalError;
    need(ncclCommGetAsyncError(communicators[rank], &error), "ncclCommGetAsyncError");
    CHECK(error == ncclSuccess);
    CHECK(std::string(ncclGetLastError(communicators[rank])) == "");
  }
  int version = 0;
  need(ncclGetVersion(&version), "ncclGetVersion");
  CHECK(version == NCCL_VERSION_CODE);
  CHECK(emulation::not_given_back().size() == 3);
  for (const ncclComm_t communicator : communicators) need(ncclCommDestroy(communicator), "ncclCommDestroy");
  CHECK(emulation::not_given_back().empty());
  CHECK(ncclCommDestroy(nullptr) == ncclSuccess);
  CHECK(ncclCommAbort(nullptr) == ncclSuccess);
}

TEST_CASE("nccl: an initialisation by a group, and one that does not block") {
  emulation::restart(machine(2, 1));
  ncclUniqueId id;
  need(ncclGetUniqueId(&id), "ncclGetUniqueId");
  ncclComm_t communicators[2] = {};
  need(ncclGroupStart(), "ncclGroupStart");
  for (int rank = 0; rank < 2; ++rank) {
    need(cudaSetDevice(rank), "cudaSetDevice");
    need(ncclCommInitRank(&communicators[rank], 2, id, rank), "ncclCommInitRank");
  }
  need(ncclGroupEnd(), "ncclGroupEnd");
  for (const ncclComm_t communicator : communicators) need(ncclCommDestroy(communicator), "ncclCommDestroy");

  emulation::Options options = machine(2);
  options.nccl.milliseconds_to_initialise = 20;
  emulation::restart(options);
  need(ncclGetUniqueId(&id), "ncclGetUniqueId");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  for (int rank = 0; rank < 2; ++rank) {
    need(cudaSetDevice(rank), "cudaSetDevice");
    CHECK(ncclCommInitRankConfig(&communicators[rank], 2, id, rank, &config) == ncclInProgress);
  }
  int polls = 0;
  for (const ncclComm_t communicator : communicators) {
    ncclResult_t state = ncclInProgress;
    for (; state == ncclInProgress; ++polls) need(ncclCommGetAsyncError(communicator, &state), "polling");
    CHECK(state == ncclSuccess);
  }
  CHECK(polls > 2);
  for (const ncclComm_t communicator : communicators) {
    CHECK(ncclCommFinalize(communicator) == ncclInProgress);
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) need(ncclCommGetAsyncError(communicator, &state), "polling");
    CHECK(state == ncclSuccess);
    need(ncclCommDestroy(communicator), "ncclCommDestroy");
  }
  CHECK(emulation::not_given_back().empty());
}

TEST_CASE("nccl: a communicator that does not block is being finalised until its operations are done") {
  emulation::restart(machine(2));
  ncclUniqueId id;
  ncclComm_t communicators[2] = {};
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  need(ncclGetUniqueId(&id), "ncclGetUniqueId");
  for (int rank = 0; rank < 2; ++rank) {
    need(cudaSetDevice(rank), "cudaSetDevice");
    CHECK(ncclCommInitRankConfig(&communicators[rank], 2, id, rank, &config) == ncclInProgress);
  }
  const auto state_after = [&](int rank, int polls) {
    ncclResult_t state = ncclInProgress;
    for (int i = 0; i < polls && state == ncclInProgress; ++i) {
      need(ncclCommGetAsyncError(communicators[rank], &state), "polling");
    }
    return state;
  };
  for (int rank = 0; rank < 2; ++rank) REQUIRE(state_after(rank, 100) == ncclSuccess);
  need(cudaSetDevice(1), "cudaSetDevice");
  const Part second({.count = 5}, 1, 2);
  need(cudaSetDevice(0), "cudaSetDevice");
  const Part first({.count = 5}, 0, 2);
  need(first.call(communicators[0], nullptr), "ncclAllReduce");
  CHECK(ncclCommFinalize(communicators[0]) == ncclInProgress);
  CHECK(state_after(0, 50) == ncclInProgress);
  need(cudaSetDevice(1), "cudaSetDevice");
  cudaStream_t stream = nullptr;
  need(cudaStreamCreate(&stream), "cudaStreamCreate");
  need(ncclGroupStart(), "ncclGroupStart");
  need(second.call(communicators[1], stream), "ncclAllReduce");
  need(ncclGroupEnd(), "ncclGroupEnd");
  CHECK(state_after(0, 200) == ncclSuccess);
  need(ncclCommDestroy(communicators[0]), "ncclCommDestroy");
}

TEST_CASE("nccl: destroying a communicator completes its operations first") {
  for (const uint64_t seed : seeds_to_try(5)) {
    emulation::restart(machine(2, seed));
    DeviceRanks ranks(2);
    const auto parts = parts_of(ranks, {.operation = Operation::kAllReduce, .count = 100});
    ranks.grouped([&](int rank) {
      const auto r = static_cast<size_t>(rank);
      need(parts[r]->call(ranks.communicators[r], ranks.streams[r]), "ncclAllReduce");
    });
    ranks.destroy();
    need(cudaSetDevice(0), "cudaSetDevice");
    CHECK(parts[0]->difference() == "");
    need(cudaSetDevice(1), "cudaSetDevice");
    CHECK(parts[1]->difference() == "");
  }
}

TEST_CASE("nccl: operations in symmetric windows are counted") {
  emulation::restart(machine(2));
  DeviceRanks ranks(2);
  constexpr size_t kBytes = 1 << 20;
  std::vector<void*> memory(2);
  std::vector<ncclWindow_t> windows(2);
  ranks.each([&](int rank) {
    void*& mine = memory[static_cast<size_t>(rank)];
    need(ncclMemAlloc(&mine, kBytes), "ncclMemAlloc");
    CHECK(reinterpret_cast<uintptr_t>(mine) % NCCL_WIN_REQUIRED_ALIGNMENT == 0);
    need(cudaMemset(mine, 0, kBytes), "cudaMemset");
    need(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  });
  // offsets [rank] of 64 floats sent; received 4096 bytes on.
  const auto all_reduce = [&](int64_t offset_0, int64_t offset_1) {
    ranks.grouped([&](int rank) {
      const auto r = static_cast<size_t>(rank);
      std::byte* const sent = static_cast<std::byte*>(memory[r]) + (rank == 0 ? offset_0 : offset_1);
      need(ncclAllReduce(sent, sent + 4096, 64, ncclFloat32, ncclSum, ranks.communicators[r], ranks.streams[r]),
           "ncclAllReduce");
    });
    ranks.synchronise();
    const int64_t counted = emulation::symmetric_collectives(ranks.communicators[0]);
    CHECK(emulation::symmetric_collectives(ranks.communicators[1]) == counted);
    return counted;
  };
  CHECK(all_reduce(0, 0) == 0);
  ranks.grouped([&](int rank) {
    const auto r = static_cast<size_t>(rank);
    need(ncclCommWindowRegister(ranks.communicators[r], memory[r], kBytes, &windows[r], NCCL_WIN_COLL_SYMMETRIC),
         "ncclCommWindowRegister");
  });
  CHECK(windows[0] != nullptr);
  CHECK(all_reduce(0, 0) == 1);
  CHECK(all_reduce(256, 256) == 2);
  CHECK(emulation::symmetric_collectives(nullptr) == -1);
  ranks.each([&](int rank) {
    const auto r = static_cast<size_t>(rank);
    need(ncclCommWindowDeregister(ranks.communicators[r], windows[r]), "ncclCommWindowDeregister");
  });
  CHECK(all_reduce(0, 0) == 2);
  // Without the flag a window is none of those.
  ranks.grouped([&](int rank) {
    const auto r = static_cast<size_t>(rank);
    need(ncclCommWindowRegister(ranks.communicators[r], memory[r], kBytes, &windows[r], NCCL_WIN_DEFAULT),
         "ncclCommWindowRegister");
  });
  CHECK(all_reduce(0, 0) == 2);
  void* registration = nullptr;
  need(ncclCommRegister(ranks.communicators[0], memory[0], kBytes, &registration), "ncclCommRegister");
  CHECK(emulation::not_given_back().size() == 2 + 2 + 2 + 2 + 1);  // communicators, streams, memory, windows, it
  need(ncclCommDeregister(ranks.communicators[0], registration), "ncclCommDeregister");
  ranks.each([&](int rank) {
    const auto r = static_cast<size_t>(rank);
    need(ncclCommWindowDeregister(ranks.communicators[r], windows[r]), "ncclCommWindowDeregister");
    need(ncclMemFree(memory[r]), "ncclMemFree");
    need(cudaStreamDestroy(ranks.streams[r]), "cudaStreamDestroy");
  });
  CHECK(ncclMemFree(nullptr) == ncclSuccess);
  ranks.destroy();
  CHECK(emulation::not_given_back().empty());
  CHECK(all_reports() == "");
}

TEST_CASE("nccl: different offsets in symmetric windows are told to all ranks") {
  constexpr int64_t kWindowBytes = 1 << 15;  // of twice as many: what lies behind is in no window
  constexpr int64_t kBlock = 256;            // bytes of a rank
  struct Case {
    const char* name;
    bool gathers;
    int64_t sent[2], received[2];    // where, of each rank
    int64_t counted;                 // as symmetric
    std::vector<std::string> words;  // {}: it is right
  };
  const Case called = GENERATE(values<Case>(
      {{"the same", false, {0, 0}, {4096, 4096}, 1, {}},
       {"sent differs", false, {0, 256}, {4096, 4096}, 0, {"has its sendbuff", "at byte 0 of", "at byte 256 of"}},
       {"received differs", false, {0, 0}, {4096, 512}, 0, {"has its recvbuff", "at byte 4096 of", "at byte 512 of"}},
       {"one rank's are in none", false, {0, 40960}, {4096, 49152}, 0, {}},
       {"in place", true, {512, 512 + kBlock}, {512, 512}, 1, {}},
       {"in place elsewhere", true, {512, 1024 + kBlock}, {512, 1024}, 0, {"recvbuff", "byte 512 of", "byte 1024 of"}},
       {"one in place", true, {512, 8192}, {512, 512}, 0, {"has its sendbuff", "at byte 512 of", "at byte 8192 of"}}}));
  INFO(called.name);
  emulation::restart(machine(2));
  const DeviceRanks ranks(2);
  std::byte* memory[2] = {};
  ranks.each([&](int rank) {
    void* mine = nullptr;
    need(ncclMemAlloc(&mine, 2 * kWindowBytes), "ncclMemAlloc");
    need(cudaMemset(mine, 0, 2 * kWindowBytes), "cudaMemset");
    need(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    memory[rank] = static_cast<std::byte*>(mine);
  });
  ncclWindow_t windows[2] = {};
  ranks.grouped([&](int rank) {
    need(ncclCommWindowRegister(ranks.communicators[static_cast<size_t>(rank)], memory[rank], kWindowBytes,
                                &windows[rank], NCCL_WIN_COLL_SYMMETRIC),
         "ncclCommWindowRegister");
  });
  ranks.grouped([&](int rank) {
    std::byte* const sent = memory[rank] + called.sent[rank];
    std::byte* const received = memory[rank] + called.received[rank];
    const ncclComm_t communicator = ranks.communicators[static_cast<size_t>(rank)];
    const cudaStream_t stream = ranks.streams[static_cast<size_t>(rank)];
    need(called.gathers ? ncclAllGather(sent, received, kBlock, ncclInt8, communicator, stream)
                        : ncclAllReduce(sent, received, kBlock, ncclInt8, ncclSum, communicator, stream),
         "the operation");
  });
  if (called.words.empty()) ranks.synchronise();
  for (const ncclComm_t communicator : ranks.communicators) {
    ncclResult_t error = ncclSuccess;
    for (int polls = 0; polls < 1000 && error == ncclSuccess; ++polls) {
      need(ncclCommGetAsyncError(communicator, &error), "polling");
    }
    CHECK(error == (called.words.empty() ? ncclSuccess : ncclInvalidUsage));
    CHECK(missing(ncclGetLastError(communicator), called.words) == "");
    CHECK(emulation::symmetric_collectives(communicator) == called.counted);
  }
  const std::vector<emulation::Report> reports = emulation::take_reports();
  CHECK(reports.size() == (called.words.empty() ? 0 : 2));
  for (const emulation::Report& report : reports) CHECK(report.fault == emulation::Fault::kRankMismatch);
}

TEST_CASE("nccl: several windows of different sizes in one group") {
  const bool blocking = GENERATE(true, false);
  constexpr size_t kWindows = 5;
  emulation::restart(machine(2));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking ? 1 : 0;
  ncclUniqueId id;
  ncclComm_t communicators[2] = {};
  ncclWindow_t windows[2][kWindows] = {};
  const auto need_in_the_end = [&](ncclResult_t state) {
    for (const ncclComm_t communicator : communicators) {
      while (state == ncclInProgress) need(ncclCommGetAsyncError(communicator, &state), "polling");
      CHECK(state == ncclSuccess);
      state = blocking ? ncclSuccess : ncclInProgress;
    }
  };
  need(ncclGetUniqueId(&id), "ncclGetUniqueId");
  need(ncclGroupStart(), "ncclGroupStart");
  for (int rank = 0; rank < 2; ++rank) {
    need(cudaSetDevice(rank), "cudaSetDevice");
    need(ncclCommInitRankConfig(&communicators[rank], 2, id, rank, &config), "ncclCommInitRankConfig");
  }
  need_in_the_end(ncclGroupEnd());
  need(ncclGroupStart(), "ncclGroupStart");
  for (int rank = 0; rank < 2; ++rank) {
    need(cudaSetDevice(rank), "cudaSetDevice");
    for (size_t i = 0; i < kWindows; ++i) {
      void* memory = nullptr;
      need(ncclMemAlloc(&memory, 4096 * (i + 1)), "ncclMemAlloc");
      need(ncclCommWindowRegister(communicators[rank], memory, 4096 * (i + 1), &windows[rank][i], 0), "a window");
    }
  }
  need_in_the_end(ncclGroupEnd());
  for (int rank = 0; rank < 2; ++rank) {
    for (const ncclWindow_t window : windows[rank]) {
      CHECK(window != nullptr);
      CHECK(ncclCommWindowDeregister(communicators[rank], window) == ncclSuccess);
    }
    need(ncclCommAbort(communicators[rank]), "ncclCommAbort");
  }
  CHECK(all_reports() == "");
}

TEST_CASE("nccl: ids need files only while ranks may come, and without files there is no id") {
  namespace fs = std::filesystem;
  const auto open_files = [] { return std::distance(fs::directory_iterator("/proc/self/fd"), {}); };
  emulation::restart(machine(1));
  ncclComm_t communicator = nullptr;
  int64_t most = 0;
  const int64_t before = open_files();
  for (int i = 0; i < 20; ++i) {
    ncclUniqueId id;
    need(ncclGetUniqueId(&id), "ncclGetUniqueId");
    need(ncclCommInitRank(&communicator, 1, id, 0), "ncclCommInitRank");
    need(ncclCommDestroy(communicator), "ncclCommDestroy");
    need(ncclCommInitAll(&communicator, 1, nullptr), "ncclCommInitAll");
    need(ncclCommAbort(communicator), "ncclCommAbort");
    most = std::max<int64_t>(most, open_files() - before);
  }
  CHECK(most <= 1);

  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = limit.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  ncclUniqueId id;
  const ncclResult_t no_id = ncclGetUniqueId(&id);
  const std::string why_no_id = emulation::take_refusal();
  const ncclResult_t none_made = ncclCommInitAll(&communicator, 1, nullptr);
  const std::string why_none_made = emulation::take_refusal();
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  CHECK(no_id == ncclSystemError);
  CHECK(none_made == ncclSystemError);
  CHECK(missing(why_no_id, {"Too many open files"}) == "");
  CHECK(missing(why_none_made, {"Too many open files"}) == "");
  CHECK(ncclGetUniqueId(&id) == ncclSuccess);
}

}  // namespace shardscope::test
