// What the NCCL stand-in refuses at a collective or a group, each slip beside what is right. Of communicators, windows
// and memory: nccl_refusals_communicators_test.cpp. What it finds later: nccl_faults_test.cpp.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/emulation/emulation.hpp"
#include "tests/emulation/nccl_slips.hpp"
#include "tests/emulation/nccl_stand.hpp"

namespace shardscope::test {
namespace {

constexpr size_t kCount = 64;

// One rank, so that right calls need nobody else.
const std::vector<Slip>& one_rank_slips() {
  const auto all_reduce = [](Scene& it, const void* sent, void* received, size_t count = kCount,
                             ncclDataType_t type = ncclFloat32, ncclRedOp_t reduction = ncclSum) {
    return ncclAllReduce(sent, received, count, type, reduction, it.communicator(), it.stream());
  };
  static const std::vector<Slip> slips = {
      {"a null communicator",
       ncclInvalidArgument,
       {"communicator is null"},
       [](Scene& it, bool planted) {
         return ncclAllReduce(it.memory, it.other, kCount, ncclFloat32, ncclSum, planted ? nullptr : it.communicator(),
                              it.stream());
       }},
      {"a communicator that is none",
       ncclInvalidArgument,
       {"no communicator"},
       [](Scene& it, bool planted) {
         auto* const garbage = reinterpret_cast<ncclComm_t>(it.on_host);
         return ncclAllReduce(it.memory, it.other, kCount, ncclFloat32, ncclSum, planted ? garbage : it.communicator(),
                              it.stream());
       }},
      {"a destroyed communicator",
       ncclInvalidArgument,
       {"no communicator", "destroyed"},
       [](Scene& it, bool planted) {
         const ncclComm_t communicator = it.communicator();
         if (planted) need(ncclCommDestroy(communicator), "ncclCommDestroy");
         int count = 0;
         return ncclCommCount(communicator, &count);
       }},
      {"a finalised communicator",
       ncclInvalidUsage,
       {"finalised"},
       [all_reduce](Scene& it, bool planted) {
         if (planted) need(ncclCommFinalize(it.communicator()), "ncclCommFinalize");
         return all_reduce(it, it.memory, it.other);
       }},
      {"host memory sent",
       ncclInvalidArgument,
       {"sendbuff", "host memory"},
       [all_reduce](Scene& it, bool planted) { return all_reduce(it, planted ? it.on_host : it.memory, it.other); }},
      {"pinned memory sent",
       ncclInvalidArgument,
       {"sendbuff", "pinned"},
       [all_reduce](Scene& it, bool planted) { return all_reduce(it, planted ? it.pinned : it.memory, it.other); }},
      {"a null pointer received",
       ncclInvalidArgument,
       {"recvbuff", "null"},
       [all_reduce](Scene& it, bool planted) { return all_reduce(it, it.memory, planted ? nullptr : it.other); }},
      {"freed memory received",
       ncclInvalidArgument,
       {"recvbuff", "freed"},
       [all_reduce](Scene& it, bool planted) { return all_reduce(it, it.memory, planted ? it.freed : it.other); }},
      {"another device's memory",
       ncclInvalidArgument,
       {"sendbuff", "device 1, not 0"},
       [all_reduce](Scene& it, bool planted) { return all_reduce(it, planted ? it.foreign : it.memory, it.other); }},
      {"a buffer one element too small",
       ncclInvalidArgument,
       {"4100 bytes", "4096"},
       [all_reduce](Scene& it, bool planted) { return all_reduce(it, it.memory, it.other, planted ? 1025 : 1024); }},
      {"a buffer from its middle",
       ncclInvalidArgument,
       {"recvbuff", "4096 bytes", "2048"},
       [all_reduce](Scene& it, bool planted) {
         return all_reduce(it, it.memory, it.at(it.other, 2048), planted ? 1024 : 512);
       }},
      {"a pointer between elements",
       ncclInvalidArgument,
       {"no multiple", "4 bytes"},
       [all_reduce](Scene& it, bool planted) { return all_reduce(it, it.at(it.memory, planted ? 2 : 4), it.other); }},
      {"more elements than there can be",
       ncclInvalidArgument,
       {"elements"},
       [all_reduce](Scene& it, bool planted) {
         return all_reduce(it, it.memory, it.other, planted ? ~size_t{0} / 4 : kCount);
       }},
      {"no type",
       ncclInvalidArgument,
       {"data type 12"},
       [all_reduce](Scene& it, bool planted) {
         return all_reduce(it, it.memory, it.other, kCount, planted ? ncclNumTypes : ncclFloat16);
       }},
      {"a type that is only moved",
       ncclInvalidArgument,
       {"ncclFloat8e4m3", "only moved"},
       [all_reduce](Scene& it, bool planted) {
         return all_reduce(it, it.memory, it.other, kCount, planted ? ncclFloat8e4m3 : ncclUint8);
       }},
      {"no reduction",
       ncclInvalidArgument,
       {"no reduction 5"},
       [all_reduce](Scene& it, bool planted) {
         return all_reduce(it, it.memory, it.other, kCount, ncclInt32, planted ? ncclNumOps : ncclAvg);
       }},
      {"overlap that is not in place",
       ncclInvalidArgument,
       {"overlap", "in place"},
       [all_reduce](Scene& it, bool planted) { return all_reduce(it, it.memory, it.at(it.memory, planted ? 4 : 0)); }},
      {"a root that is no rank",
       ncclInvalidArgument,
       {"root 1", "below 1"},
       [](Scene& it, bool planted) {
         return ncclBroadcast(it.memory, it.other, kCount, ncclInt8, planted ? 1 : 0, it.communicator(), it.stream());
       }},
      {"another device's stream",
       ncclInvalidArgument,
       {"stream is of device 1", "communicator of device 0"},
       [](Scene& it, bool planted) {
         return ncclAllGather(it.memory, it.other, kCount, ncclInt8, it.communicator(),
                              planted ? it.foreign_stream : it.stream());
       }},
      {"a destroyed stream",
       ncclInvalidArgument,
       {"no such stream"},
       [](Scene& it, bool planted) {
         return ncclAllGather(it.memory, it.other, kCount, ncclInt8, it.communicator(),
                              planted ? it.dead_stream : it.stream());
       }},
      {"the null stream of another device",
       ncclInvalidArgument,
       {"stream is of device 1"},
       [](Scene& it, bool planted) {
         need(cudaSetDevice(planted ? 1 : 0), "cudaSetDevice");
         return ncclReduceScatter(it.memory, it.other, kCount, ncclInt8, ncclMax, it.communicator(), nullptr);
       }},
      {"the null stream in a group",
       ncclInvalidUsage,
       {"null stream in a group"},
       [](Scene& it, bool planted) {
         need(ncclGroupStart(), "ncclGroupStart");
         ncclAllGather(it.memory, it.other, kCount, ncclInt8, it.communicator(), planted ? nullptr : it.stream());
         return ncclGroupEnd();
       }},
      {"the end of a group that was not begun",
       ncclInvalidUsage,
       {"no ncclGroupStart"},
       [](Scene&, bool planted) {
         if (!planted) need(ncclGroupStart(), "ncclGroupStart");
         return ncclGroupEnd();
       }},
      {"an error within a group",
       ncclInvalidArgument,
       {"ncclGroupEnd", "ncclAllGather in the group", "host memory"},
       [](Scene& it, bool planted) {
         need(ncclGroupStart(), "ncclGroupStart");
         need(ncclGroupStart(), "ncclGroupStart");
         const void* const sent = planted ? it.on_host : it.memory;
         const ncclResult_t at_call = ncclAllGather(sent, it.other, kCount, ncclInt8, it.communicator(), it.stream());
         CHECK(at_call == (planted ? ncclInvalidArgument : ncclSuccess));
         need(ncclGroupEnd(), "the inner ncclGroupEnd");
         return ncclGroupEnd();
       }},
  };
  return slips;
}

// Two ranks of this thread.
const std::vector<Slip>& two_rank_slips() {
  static const std::vector<Slip> slips = {
      {"one thread, two ranks, no group",
       ncclInvalidUsage,
       {"also drives rank 0 of 2", "ncclGroupStart"},
       [](Scene& it, bool planted) {
         if (!planted) need(ncclGroupStart(), "ncclGroupStart");
         need(ncclAllReduce(it.memory, it.memory, 4, ncclInt8, ncclSum, it.communicator(), it.stream()), "rank 0");
         const ncclResult_t result = ncclAllReduce(it.foreign, it.foreign, 4, ncclInt8, ncclSum,
                                                   it.ranks.communicators[1], it.ranks.streams[1]);
         return planted ? result : ncclGroupEnd();
       }},
      {"gathered in the wrong place",
       ncclInvalidArgument,
       {"overlap", "ncclAllGather of rank 0"},
       [](Scene& it, bool planted) {
         need(ncclGroupStart(), "ncclGroupStart");
         ncclAllGather(it.at(it.memory, planted ? 64 : 0), it.memory, 64, ncclInt8, it.communicator(), it.stream());
         ncclAllGather(it.at(it.foreign, 64), it.foreign, 64, ncclInt8, it.ranks.communicators[1], it.ranks.streams[1]);
         return ncclGroupEnd();
       }},
      {"scattered to the wrong place",
       ncclInvalidArgument,
       {"overlap", "ncclReduceScatter of rank 1"},
       [](Scene& it, bool planted) {
         need(ncclGroupStart(), "ncclGroupStart");
         ncclReduceScatter(it.memory, it.memory, 64, ncclInt8, ncclSum, it.communicator(), it.stream());
         ncclReduceScatter(it.foreign, it.at(it.foreign, planted ? 0 : 64), 64, ncclInt8, ncclSum,
                           it.ranks.communicators[1], it.ranks.streams[1]);
         return ncclGroupEnd();
       }},
      {"gathered into too little memory",
       ncclInvalidArgument,
       {"recvbuff", "8192 bytes", "4096"},
       [](Scene& it, bool planted) {
         const size_t count = planted ? 4096 : 2048;
         need(ncclGroupStart(), "ncclGroupStart");
         ncclAllGather(it.memory, it.other, count, ncclInt8, it.communicator(), it.stream());
         ncclAllGather(it.at(it.foreign, 2048), it.foreign, 2048, ncclInt8, it.ranks.communicators[1],
                       it.ranks.streams[1]);
         return ncclGroupEnd();
       }},
  };
  return slips;
}

}  // namespace

TEST_CASE("nccl refusals: each slip of a call is refused with its reason, and what is right is not") {
  try_all(one_rank_slips(), 1);
}

TEST_CASE("nccl refusals: slips between two ranks of one thread") {
  try_all(two_rank_slips(), 2);
}

TEST_CASE("nccl refusals: two threads may swap their ranks when their operations are done") {
  const bool done = GENERATE(true, false);
  emulation::restart({.devices = 2});
  const DeviceRanks ranks(2);
  const auto parts = parts_of(ranks, {.count = 9});
  const auto call = [&](size_t rank) {
    need(cudaSetDevice(static_cast<int>(rank)), "cudaSetDevice");
    return parts[rank]->call(ranks.communicators[rank], ranks.streams[rank]);
  };
  need(call(0), "rank 0");
  ncclResult_t others = ncclSystemError;
  std::thread([&] { others = call(1); }).join();
  CHECK(others == ncclSuccess);
  if (done) ranks.synchronise();
  CHECK(call(1) == (done ? ncclSuccess : ncclInvalidUsage));
  if (!done) return;
  std::thread([&] { others = call(0); }).join();
  CHECK(others == ncclSuccess);
  ranks.synchronise();
  CHECK(all_reports() == "");
}

TEST_CASE("nccl refusals: after ncclInProgress nothing goes before ncclCommGetAsyncError") {
  bool seen[2] = {};
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    emulation::restart({.seed = seed});
    ncclUniqueId id;
    ncclComm_t communicator = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    need(ncclGetUniqueId(&id), "ncclGetUniqueId");
    ncclResult_t state = ncclCommInitRankConfig(&communicator, 1, id, 0, &config);
    while (state == ncclInProgress) need(ncclCommGetAsyncError(communicator, &state), "polling");
    void* memory = nullptr;
    need(cudaMalloc(&memory, 64), "cudaMalloc");
    need(cudaMemset(memory, 0, 64), "cudaMemset");
    const auto all_reduce = [&] {
      return ncclAllReduce(memory, memory, 16, ncclInt32, ncclSum, communicator, nullptr);
    };
    ncclResult_t result = all_reduce();
    REQUIRE((result == ncclSuccess || result == ncclInProgress));
    seen[result == ncclInProgress] = true;
    if (result == ncclInProgress) {
      CHECK(all_reduce() == ncclInvalidUsage);
      CHECK(missing(emulation::take_refusal(), {"not ready", "ncclInProgress"}) == "");
      while (result == ncclInProgress) need(ncclCommGetAsyncError(communicator, &result), "polling");
    }
    result = all_reduce();
    CHECK((result == ncclSuccess || result == ncclInProgress));
    CHECK(ncclCommAbort(communicator) == ncclSuccess);
  }
  CHECK(seen[0]);
  CHECK(seen[1]);
}

TEST_CASE("nccl refusals: a group that is not ended is not given back, and does nothing") {
  emulation::restart({});
  const DeviceRanks ranks(1);
  const size_t before = emulation::not_given_back().size();
  need(ncclGroupStart(), "ncclGroupStart");
  const Part part({.count = 3}, 0, 1);
  need(part.call(ranks.communicators[0], ranks.streams[0]), "ncclAllReduce");
  const std::vector<std::string> held = emulation::not_given_back();
  CHECK(missing(fmt::format("{}", fmt::join(held, "; ")), {"group that was begun"}) == "");
  CHECK(part.difference() != "");
  CHECK(ncclCommDestroy(ranks.communicators[0]) == ncclInvalidUsage);
  CHECK(missing(emulation::take_refusal(), {"a group with operations of it has not ended"}) == "");
  need(ncclGroupEnd(), "ncclGroupEnd");
  CHECK(part.difference() == "");
  CHECK(emulation::not_given_back().size() == before + 2);  // the part's memory
}

TEST_CASE("nccl refusals: a call fails when the options say so, with their error") {
  emulation::Options options;
  options.failing = {{.function = "ncclAllReduce", .nth = 2},
                     {.function = "ncclCommCount", .error = ncclInternalError}};
  emulation::restart(options);
  const DeviceRanks ranks(1);
  const Part part({.count = 3}, 0, 1);
  CHECK(part.call(ranks.communicators[0], ranks.streams[0]) == ncclSuccess);
  CHECK(part.call(ranks.communicators[0], ranks.streams[0]) == ncclSystemError);
  CHECK(part.call(ranks.communicators[0], ranks.streams[0]) == ncclSuccess);
  int count = 0;
  CHECK(ncclCommCount(ranks.communicators[0], &count) == ncclInternalError);
  CHECK(emulation::calls()["ncclAllReduce"] == 3);
}

}  // namespace shardscope::test
