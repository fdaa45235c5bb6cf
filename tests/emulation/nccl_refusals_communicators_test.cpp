// What the NCCL stand-in refuses of communicators, windows and memory, each slip beside what is right.
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/emulation/emulation.hpp"
#include "tests/emulation/nccl_slips.hpp"
#include "tests/emulation/nccl_stand.hpp"

namespace shardscope::test {
namespace {

// One rank, so that right calls need nobody else.
const std::vector<Slip>& initialisation_slips() {
  static const std::vector<Slip> slips = {
      {"an initialisation and a collective in a group",
       ncclInvalidUsage,
       {"in one group"},
       [](Scene& it, bool planted) {
         ncclUniqueId id;
         ncclComm_t added = nullptr;
         need(ncclGetUniqueId(&id), "ncclGetUniqueId");
         need(ncclGroupStart(), "ncclGroupStart");
         need(ncclCommInitRank(&added, 1, id, 0), "ncclCommInitRank");
         if (planted) ncclAllGather(it.memory, it.other, 64, ncclInt8, it.communicator(), it.stream());
         const ncclResult_t result = ncclGroupEnd();
         CHECK((added == nullptr) == planted);
         return result;
       }},
      {"a communicator that blocks beside one that does not, initialised in a group",
       ncclInvalidUsage,
       {"blocking and non-blocking communicators in one group"},
       [](Scene&, bool planted) {
         ncclComm_t added[2] = {};
         need(ncclGroupStart(), "ncclGroupStart");
         for (ncclComm_t& one : added) {
           ncclUniqueId id;
           ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
           config.blocking = planted && &one == added ? 0 : 1;
           need(ncclGetUniqueId(&id), "ncclGetUniqueId");
           ncclCommInitRankConfig(&one, 1, id, 0, &config);
         }
         const ncclResult_t result = ncclGroupEnd();
         for (const ncclComm_t one : added) CHECK((one == nullptr) == planted);
         return result;
       }},
      {"a communicator that blocks beside one that does not, used in a group",
       ncclInvalidUsage,
       {"blocking and non-blocking communicators in one group"},
       [](Scene& it, bool planted) {
         ncclUniqueId id;
         ncclComm_t added = nullptr;
         ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
         config.blocking = planted ? 0 : 1;
         need(ncclGetUniqueId(&id), "ncclGetUniqueId");
         ncclResult_t state = ncclCommInitRankConfig(&added, 1, id, 0, &config);
         while (state == ncclInProgress) need(ncclCommGetAsyncError(added, &state), "polling");
         need(ncclGroupStart(), "ncclGroupStart");
         need(ncclAllGather(it.memory, it.other, 64, ncclInt8, it.communicator(), it.stream()), "ncclAllGather");
         ncclAllGather(it.memory, it.other, 64, ncclInt8, added, it.stream());
         return ncclGroupEnd();
       }},
      {"destroyed in the group that registers a window of it",
       ncclInvalidUsage,
       {"a group with operations of it has not ended"},
       [](Scene& it, bool planted) {
         void* memory = nullptr;
         ncclWindow_t window = nullptr;
         need(ncclMemAlloc(&memory, 4096), "ncclMemAlloc");
         need(ncclGroupStart(), "ncclGroupStart");
         need(ncclCommWindowRegister(it.communicator(), memory, 4096, &window, 0), "ncclCommWindowRegister");
         if (!planted) need(ncclGroupEnd(), "ncclGroupEnd");
         if (!planted) need(ncclCommWindowDeregister(it.communicator(), window), "ncclCommWindowDeregister");
         const ncclResult_t result = ncclCommDestroy(it.communicator());
         if (planted) need(ncclGroupEnd(), "ncclGroupEnd");
         return result;
       }},
      {"a rank that is none",
       ncclInvalidArgument,
       {"rank 1 is not below 1"},
       [](Scene&, bool planted) {
         ncclUniqueId id;
         ncclComm_t added = nullptr;
         need(ncclGetUniqueId(&id), "ncclGetUniqueId");
         return ncclCommInitRank(&added, 1, id, planted ? 1 : 0);
       }},
      {"no ranks",
       ncclInvalidArgument,
       {"0 ranks"},
       [](Scene&, bool planted) {
         ncclUniqueId id;
         ncclComm_t added = nullptr;
         need(ncclGetUniqueId(&id), "ncclGetUniqueId");
         return ncclCommInitRank(&added, planted ? 0 : 1, id, 0);
       }},
      {"an id that nobody gave",
       ncclInvalidArgument,
       {"unique id", "128 bytes"},
       [](Scene&, bool planted) {
         ncclUniqueId id;
         ncclComm_t added = nullptr;
         need(ncclGetUniqueId(&id), "ncclGetUniqueId");
         if (planted) std::memset(&id, 0, sizeof(id));
         return ncclCommInitRank(&added, 1, id, 0);
       }},
      {"an id of before a restart",
       ncclSystemError,
       {"is gone, or has been restarted"},
       [](Scene&, bool planted) {
         ncclUniqueId id;
         ncclComm_t added = nullptr;
         need(ncclGetUniqueId(&id), "ncclGetUniqueId");
         if (planted) emulation::restart({});
         return ncclCommInitRank(&added, 1, id, 0);
       }},
      {"a configuration without its initialiser",
       ncclInvalidArgument,
       {"NCCL_CONFIG_INITIALIZER"},
       [](Scene&, bool planted) {
         ncclUniqueId id;
         ncclComm_t added = nullptr;
         ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
         if (planted) std::memset(static_cast<void*>(&config), 0, sizeof(config));
         config.blocking = 1;
         need(ncclGetUniqueId(&id), "ncclGetUniqueId");
         return ncclCommInitRankConfig(&added, 1, id, 0, &config);
       }},
      {"a configuration with nonsense",
       ncclInvalidArgument,
       {"minCTAs, above maxCTAs, is 4"},
       [](Scene&, bool planted) {
         ncclUniqueId id;
         ncclComm_t added = nullptr;
         ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
         config.minCTAs = 4;
         config.maxCTAs = planted ? 2 : 8;
         need(ncclGetUniqueId(&id), "ncclGetUniqueId");
         return ncclCommInitRankConfig(&added, 1, id, 0, &config);
       }},
      {"a device twice",
       ncclInvalidUsage,
       {"Duplicate GPU detected", "device 1"},
       [](Scene&, bool planted) {
         const int devices[] = {1, planted ? 1 : 0};
         ncclComm_t added[2] = {};
         return ncclCommInitAll(added, 2, devices);
       }},
      {"more ranks than devices",
       ncclInvalidArgument,
       {"3 communicators for 2 devices"},
       [](Scene&, bool planted) {
         ncclComm_t added[3] = {};
         return ncclCommInitAll(added, planted ? 3 : 2, nullptr);
       }},
      {"a device that is none",
       ncclInvalidArgument,
       {"no device 2"},
       [](Scene&, bool planted) {
         const int devices[] = {planted ? 2 : 1};
         ncclComm_t added[1] = {};
         return ncclCommInitAll(added, 1, devices);
       }},
      {"use before it is ready",
       ncclInvalidUsage,
       {"not ready", "ncclCommGetAsyncError"},
       [](Scene& it, bool planted) {
         ncclUniqueId id;
         ncclComm_t added = nullptr;
         ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
         config.blocking = 0;
         need(ncclGetUniqueId(&id), "ncclGetUniqueId");
         CHECK(ncclCommInitRankConfig(&added, 1, id, 0, &config) == ncclInProgress);
         ncclResult_t state = ncclInProgress;
         while (!planted && state == ncclInProgress) need(ncclCommGetAsyncError(added, &state), "polling");
         const ncclResult_t result = ncclAllGather(it.memory, it.other, 1, ncclInt8, added, it.stream());
         CHECK(ncclCommAbort(added) == ncclSuccess);
         return result == ncclInProgress ? ncclSuccess : result;
       }},
      {"destroyed while it is being finalised",
       ncclInvalidUsage,
       {"still being finalised"},
       [](Scene&, bool planted) {
         ncclUniqueId id;
         ncclComm_t added = nullptr;
         ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
         config.blocking = 0;
         need(ncclGetUniqueId(&id), "ncclGetUniqueId");
         ncclResult_t state = ncclCommInitRankConfig(&added, 1, id, 0, &config);
         while (state == ncclInProgress) need(ncclCommGetAsyncError(added, &state), "polling");
         state = ncclCommFinalize(added);
         CHECK(state == ncclInProgress);
         while (!planted && state == ncclInProgress) need(ncclCommGetAsyncError(added, &state), "polling");
         return ncclCommDestroy(added);
       }},
  };
  return slips;
}

const std::vector<Slip>& memory_slips() {
  static const std::vector<Slip> slips = {
      {"a window in memory of cudaMalloc",
       ncclInvalidArgument,
       {"not from ncclMemAlloc"},
       [](Scene& it, bool planted) {
         void* memory = nullptr;
         ncclWindow_t window = nullptr;
         if (planted) {
           need(cudaMalloc(&memory, 8192), "cudaMalloc");
         } else {
           need(ncclMemAlloc(&memory, 8192), "ncclMemAlloc");
         }
         const auto begin = (reinterpret_cast<uintptr_t>(memory) + 4095) / 4096 * 4096;  // in either, 4 KiB are left
         return ncclCommWindowRegister(it.communicator(), reinterpret_cast<void*>(begin), 4096, &window,
                                       NCCL_WIN_COLL_SYMMETRIC);
       }},
      {"a window that ends behind its memory",
       ncclInvalidArgument,
       {"4097 bytes", "4096"},
       [](Scene& it, bool planted) {
         void* memory = nullptr;
         ncclWindow_t window = nullptr;
         need(ncclMemAlloc(&memory, 4096), "ncclMemAlloc");
         return ncclCommWindowRegister(it.communicator(), memory, planted ? 4097 : 4096, &window,
                                       NCCL_WIN_COLL_SYMMETRIC);
       }},
      {"a window that is not aligned",
       ncclInvalidArgument,
       {"NCCL_WIN_REQUIRED_ALIGNMENT"},
       [](Scene& it, bool planted) {
         void* memory = nullptr;
         ncclWindow_t window = nullptr;
         need(ncclMemAlloc(&memory, 16384), "ncclMemAlloc");
         return ncclCommWindowRegister(it.communicator(), it.at(memory, planted ? 1024 : 4096), 4096, &window, 0);
       }},
      {"window flags that are none",
       ncclInvalidArgument,
       {"flags 6"},
       [](Scene& it, bool planted) {
         void* memory = nullptr;
         ncclWindow_t window = nullptr;
         need(ncclMemAlloc(&memory, 4096), "ncclMemAlloc");
         return ncclCommWindowRegister(it.communicator(), memory, 4096, &window, planted ? 6 : 1);
       }},
      {"a window deregistered twice",
       ncclInvalidArgument,
       {"no window of this communicator"},
       [](Scene& it, bool planted) {
         void* memory = nullptr;
         ncclWindow_t window = nullptr;
         need(ncclMemAlloc(&memory, 4096), "ncclMemAlloc");
         need(ncclCommWindowRegister(it.communicator(), memory, 4096, &window, 1), "ncclCommWindowRegister");
         if (planted) need(ncclCommWindowDeregister(it.communicator(), window), "ncclCommWindowDeregister");
         return ncclCommWindowDeregister(it.communicator(), window);
       }},
      {"a window of more bytes than numbers hold",
       ncclInvalidArgument,
       {"18446744073709551615 bytes"},
       [](Scene& it, bool planted) {
         void* memory = nullptr;
         ncclWindow_t window = nullptr;
         need(ncclMemAlloc(&memory, 4096), "ncclMemAlloc");
         return ncclCommWindowRegister(it.communicator(), memory, planted ? SIZE_MAX : 4096, &window, 0);
       }},
      {"more bytes registered than numbers hold",
       ncclInvalidArgument,
       {"18446744073709551615 bytes: no memory has so many"},
       [](Scene& it, bool planted) {
         void* handle = nullptr;
         return ncclCommRegister(it.communicator(), it.memory, planted ? SIZE_MAX : 4096, &handle);
       }},
      {"more memory than numbers hold",
       ncclUnhandledCudaError,
       {"no 18446744073709551615 bytes are left on device 0"},
       [](Scene&, bool planted) {
         void* memory = nullptr;
         return ncclMemAlloc(&memory, planted ? SIZE_MAX : 1 << 20);
       }},
      {"host memory registered",
       ncclInvalidArgument,
       {"host memory"},
       [](Scene& it, bool planted) {
         void* handle = nullptr;
         return ncclCommRegister(it.communicator(), planted ? it.on_host : it.memory, 4096, &handle);
       }},
      {"memory of cudaMalloc given to ncclMemFree",
       ncclInvalidArgument,
       {"none that ncclMemAlloc gave"},
       [](Scene& it, bool planted) {
         void* memory = nullptr;
         need(ncclMemAlloc(&memory, 4096), "ncclMemAlloc");
         return ncclMemFree(planted ? it.memory : memory);
       }},
      {"memory freed twice",
       ncclInvalidArgument,
       {"none that ncclMemAlloc gave"},
       [](Scene&, bool planted) {
         void* memory = nullptr;
         need(ncclMemAlloc(&memory, 4096), "ncclMemAlloc");
         if (planted) need(ncclMemFree(memory), "ncclMemFree");
         return ncclMemFree(memory);
       }},
      {"more memory than there is",
       ncclUnhandledCudaError,
       {"are left on device 0"},
       [](Scene&, bool planted) {
         void* memory = nullptr;
         return ncclMemAlloc(&memory, planted ? size_t{1} << 45 : 1 << 20);
       }},
  };
  return slips;
}

}  // namespace

TEST_CASE("nccl refusals: each slip of an initialisation is refused with its reason, and what is right is not") {
  try_all(initialisation_slips(), 1);
}

TEST_CASE("nccl refusals: each slip with windows and memory is refused with its reason, and what is right is not") {
  try_all(memory_slips(), 1);
}

TEST_CASE("nccl refusals: what is aborted before its group ends is left out of it") {
  const bool window = GENERATE(true, false);
  emulation::restart({});
  ncclUniqueId id;
  ncclComm_t aborted = nullptr, kept = nullptr;
  void* memory = nullptr;
  ncclWindow_t registered = nullptr;
  need(ncclMemAlloc(&memory, 4096), "ncclMemAlloc");
  need(ncclGetUniqueId(&id), "ncclGetUniqueId");
  if (window) need(ncclCommInitRank(&aborted, 1, id, 0), "ncclCommInitRank");
  need(ncclGroupStart(), "ncclGroupStart");
  if (window) {
    need(ncclCommWindowRegister(aborted, memory, 4096, &registered, 0), "ncclCommWindowRegister");
  } else {
    need(ncclCommInitRank(&aborted, 1, id, 0), "ncclCommInitRank");
  }
  need(ncclGetUniqueId(&id), "ncclGetUniqueId");
  need(ncclCommInitRank(&kept, 1, id, 0), "ncclCommInitRank");
  CHECK(ncclCommAbort(aborted) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclSuccess);
  CHECK(registered == nullptr);
  CHECK(ncclCommDestroy(aborted) == ncclInvalidArgument);
  CHECK(ncclCommDestroy(kept) == ncclSuccess);
  CHECK(ncclMemFree(memory) == ncclSuccess);
  CHECK(emulation::not_given_back().empty());
}

TEST_CASE("nccl refusals: one thread that initialises two ranks one after another is told of groups") {
  const bool planted = GENERATE(true, false);
  emulation::Options options{.devices = 2};
  options.nccl.milliseconds_to_arrive = planted ? 100 : 30'000;
  emulation::restart(options);
  ncclUniqueId id;
  ncclComm_t communicators[2] = {};
  need(ncclGetUniqueId(&id), "ncclGetUniqueId");
  if (!planted) need(ncclGroupStart(), "ncclGroupStart");
  const ncclResult_t first = ncclCommInitRank(&communicators[0], 2, id, 0);
  CHECK(first == (planted ? ncclSystemError : ncclSuccess));
  if (planted) {
    CHECK(missing(emulation::take_refusal(), {"ncclCommInitRank: 1", "ncclGroupStart and ncclGroupEnd"}) == "");
    CHECK(emulation::not_given_back().empty());
    return;
  }
  need(cudaSetDevice(1), "cudaSetDevice");
  need(ncclCommInitRank(&communicators[1], 2, id, 1), "ncclCommInitRank");
  CHECK(ncclGroupEnd() == ncclSuccess);
  CHECK(emulation::not_given_back().size() == 2);
}

}  // namespace shardscope::test
