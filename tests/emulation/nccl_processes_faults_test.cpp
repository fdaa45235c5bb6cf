// The NCCL stand-in with ranks in processes of their own that do different things, come late, stand still or die.
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/emulation/emulation.hpp"
#include "tests/emulation/nccl_member.hpp"
#include "tests/emulation/nccl_stand.hpp"
#include "tests/emulation/processes.hpp"

namespace shardscope::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// For tests of ranks that do not come: far more than ranks need that do, on a busy machine.
constexpr int kLate_ms = 3000;

}  // namespace

TEST_CASE("nccl processes: ranks that call different operations are all told the same: who called what") {
  // What each rank calls, and which two are named then.
  struct Case {
    std::string counts;
    int first = 0, second = 0;
  };
  const Case called = GENERATE(
      values<Case>({{"77"}, {"78", 0, 1}, {"7777"}, {"7877", 0, 1}, {"7778", 0, 3}, {"8777", 0, 1}, {"7798", 0, 2}}));
  INFO(called.counts);
  const int count = static_cast<int>(called.counts.size());
  in_processes(count, worker_machine(count), [&](Rank& rank) {
    Member member(rank);
    member.run({.count = 100});
    // 7: seven elements are reduced; others gather so many.
    const auto elements = [&](int of_rank) { return called.counts[static_cast<size_t>(of_rank)] - '0'; };
    const auto operation = [&](int of_rank) {
      return elements(of_rank) == 7 ? "ncclAllReduce of 7 ncclFloat32, ncclSum"
                                    : "ncclAllGather of " + std::to_string(elements(of_rank)) + " ncclFloat32";
    };
    member.begin({.operation = elements(rank.rank()) == 7 ? Operation::kAllReduce : Operation::kAllGather,
                  .count = elements(rank.rank())});
    if (called.second == 0) {
      member.expect_nothing_wrong();
      return;
    }
    const std::string difference = "operation 1 of the communicator differs: " + member.named(called.first) +
                                   " called " + operation(called.first) + ", " + member.named(called.second) +
                                   " called " + operation(called.second);
    member.expect_error(ncclInvalidUsage, {difference});
    const std::string lacks = missing(all_reports(), {"ranks that do not do the same: " + difference});
    rank.expect(lacks.empty(), lacks);
  });
}

TEST_CASE("nccl processes: of those that differ, what is known is told also if another rank does not come") {
  const bool dies = GENERATE(true, false);
  emulation::Options options{.devices = 3};
  if (!dies) options.nccl.milliseconds_to_arrive = kLate_ms;
  in_processes(3, options, [&](Rank& rank) {
    Member member(rank);
    const std::string difference = "operation 0 of the communicator differs: " + member.named(0) +
                                   " called ncclBroadcast of 5 ncclFloat32 from rank 0, " + member.named(1) +
                                   " called ncclBroadcast of 6 ncclFloat32 from rank 0; ";
    if (rank.rank() != 2) {
      member.begin({.operation = Operation::kBroadcast, .count = 5 + rank.rank()});
      // This lets the device go on: the rank has come to the operation.
      rank.expect(cudaStreamQuery(member.stream) == cudaErrorNotReady, "it waits");
    }
    rank.barrier();
    if (rank.rank() == 2) {
      if (dies) rank.die();
      // It is told so too, although it has called nothing, before the others abort.
      rank.expect(member.wait_for_error() == ncclInvalidUsage, "told");
      member.has_seen();
      const std::string lacks = missing(ncclGetLastError(member.communicator), {difference});
      rank.expect(lacks.empty(), lacks);
      need(ncclCommAbort(member.communicator), "ncclCommAbort");
      return;
    }
    member.expect_error(ncclInvalidUsage, {difference, dies ? member.named(2) + " has died" : "ms " + member.named(2)},
                        dies ? 2 : -1);
  });
}

TEST_CASE("nccl processes: a rank that does not come is named when the time is up") {
  emulation::Options options = worker_machine(3);
  options.nccl.milliseconds_to_arrive = kLate_ms;
  in_processes(3, options, [](Rank& rank) {
    Member member(rank);
    member.run({.count = 10});
    rank.barrier();
    if (rank.rank() != 2) {
      member.begin({.operation = Operation::kBroadcast, .count = 5});
      member.expect_error(ncclSystemError,
                          {" ms " + member.named(2) + " has not come", "operation 1, ncclBroadcast of 5 ncclFloat32"},
                          2);
    }
    rank.barrier();
  });
}

TEST_CASE("nccl processes: a rank that dies before or in an operation is named, with what it should have done") {
  const bool in_the_middle = GENERATE(false, true);
  const auto begin = Clock::now();
  const std::vector<Outcome> outcomes = in_processes(3, worker_machine(3), [&](Rank& rank) {
    // The one that dies has no worker, so that it cannot complete the operation meanwhile.
    if (rank.rank() == 1) emulation::restart({.devices = 3});
    Member member(rank);
    member.run({.count = 10});
    if (!in_the_middle && rank.rank() == 1) rank.die();
    member.begin({.count = in_the_middle ? 4'000'000 : 10});
    if (in_the_middle && rank.rank() == 1) {
      rank.expect(cudaStreamQuery(member.stream) == cudaErrorNotReady, "it has come to the operation");
    }
    if (in_the_middle) rank.barrier();
    if (in_the_middle && rank.rank() == 1) rank.die();
    // The operation's own error, which is said without polling.
    const Clock::time_point end = Clock::now() + seconds(10);
    while (*ncclGetLastError(member.communicator) == '\0' && Clock::now() < end) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    const std::string operation =
        in_the_middle ? "operation 1, ncclAllReduce of 4000000 " : "operation 1, ncclAllReduce of 10 ";
    member.expect_error(ncclRemoteError, {member.named(1) + " has died before or in " + operation}, 1);
  });
  CHECK(outcomes[1].end == Outcome::End::kDied);
  CHECK(Clock::now() - begin < seconds(20));  // not only when it is late
}

TEST_CASE("nccl processes: a rank that stands still is late") {
  emulation::Options options = worker_machine(2);
  options.nccl.milliseconds_to_arrive = kLate_ms;
  const std::vector<Outcome> outcomes = in_processes(2, options, [](Rank& rank) {
    Member member(rank);
    if (rank.rank() == 1) rank.stop_here();
    member.begin({.count = 10});
    member.expect_error(ncclSystemError, {member.named(1), "operation 0, ncclAllReduce of 10"}, 1);
  });
  CHECK(outcomes[1].end == Outcome::End::kStopped);
}

TEST_CASE("nccl processes: if NCCL does not tell of dead ranks, it waits without an end") {
  emulation::Options options = worker_machine(2);
  options.nccl.milliseconds_to_arrive = kLate_ms;
  options.nccl.tells_of_dead_ranks = false;
  in_processes(2, options, [](Rank& rank) {
    Member member(rank);
    if (rank.rank() == 1) rank.die();
    member.begin({.count = 10});
    rank.expect(member.wait_for_error(milliseconds(kLate_ms + 500)) == ncclSuccess, "no error");
    rank.expect(cudaStreamQuery(member.stream) == cudaErrorNotReady, "it waits");
    need(ncclCommAbort(member.communicator), "ncclCommAbort");
    need(cudaStreamSynchronize(member.stream), "cudaStreamSynchronize");
  });
}

TEST_CASE("nccl processes: if NCCL does not tell of dead ranks, a window ends in a report, an initialisation late") {
  const bool window = GENERATE(true, false);
  emulation::Options options = worker_machine(3);
  options.nccl.tells_of_dead_ranks = false;
  options.nccl.milliseconds_to_arrive = kLate_ms;
  options.seconds_to_end = kLate_ms / 1000 + 1;
  in_processes(3, options, [&](Rank& rank) {
    if (window) {
      Member member(rank);
      void* memory = nullptr;
      ncclWindow_t registered = nullptr;
      need(ncclMemAlloc(&memory, 4096), "ncclMemAlloc");
      if (rank.rank() == 1) rank.die();
      rank.kill_rank(1);  // if it is not gone yet
      const ncclResult_t result = ncclCommWindowRegister(member.communicator, memory, 4096, &registered, 0);
      rank.expect(result == ncclUnhandledCudaError, ncclGetErrorString(result));
      const std::string why = member.named(1) + " has died before window 0";
      rank.expect(missing(emulation::take_refusal(), {why}).empty(), "refused with the reason");
      const std::vector<emulation::Report> reports = emulation::take_reports();
      rank.expect(reports.size() == 1 && reports[0].fault == emulation::Fault::kNoProgress, "reported");
      rank.expect(missing(reports[0].message, {"ncclCommWindowRegister", why}).empty(), reports[0].message);
      return;
    }
    // Rank 1 comes, and dies; rank 2 does not come.
    const ncclUniqueId id = Member::shared_id(rank);
    ncclComm_t communicator = nullptr;
    if (rank.rank() == 1) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      rank.expect(ncclCommInitRankConfig(&communicator, 3, id, 1, &config) == ncclInProgress, "in progress");
    }
    rank.barrier();
    if (rank.rank() == 1) rank.die();
    rank.kill_rank(1);
    if (rank.rank() == 0) {
      const ncclResult_t result = ncclCommInitRank(&communicator, 3, id, 0);
      rank.expect(result == ncclSystemError, ncclGetErrorString(result));
      const std::string why = emulation::take_refusal();
      rank.expect(missing(why, {"of 3 ranks have not called ncclCommInitRank: 2"}).empty(), why);
    }
  });
}

TEST_CASE("nccl processes: an abort frees the others from waiting") {
  in_processes(3, worker_machine(3), [](Rank& rank) {
    Member member(rank);
    member.run({.count = 10});
    if (rank.rank() != 1) member.begin({.count = 10});
    rank.barrier();
    const Clock::time_point begin = Clock::now();
    if (rank.rank() == 1) {
      need(ncclCommAbort(member.communicator), "ncclCommAbort");
      return;
    }
    // Others may abort before this one asks; then it is one of those that is named.
    const ncclResult_t error = member.wait_for_error();
    rank.expect(Clock::now() - begin < seconds(10), "not only when it is late");
    rank.expect(error == ncclRemoteError, "the code");
    rank.expect(missing(ncclGetLastError(member.communicator), {"has aborted the communicator"}).empty(), "the text");
    need(ncclCommAbort(member.communicator), "ncclCommAbort");
    need(cudaStreamSynchronize(member.stream), "cudaStreamSynchronize");
  });
}

TEST_CASE("nccl processes: what is wrong at an initialisation is told to all ranks") {
  struct Slip {
    const char* name;
    ncclResult_t code;
    std::vector<std::string> words;
    int ranks_of_1 = 2, rank_of_1 = 1, device_of_1 = 1;
    bool comes = true, lives = true;
  };
  const Slip slip = GENERATE(values<Slip>(
      {{.name = "sound", .code = ncclSuccess, .words = {}},
       {.name = "different numbers of ranks",
        .code = ncclInvalidArgument,
        .words = {"rank 0 (pid ", "2 ranks", "rank 1 (pid ", "3 ranks"},
        .ranks_of_1 = 3},
       {.name = "a rank twice", .code = ncclInvalidUsage, .words = {"rank 0 comes twice"}, .rank_of_1 = 0},
       {.name = "one GPU",
        .code = ncclInvalidUsage,
        .words = {"Duplicate GPU detected", "rank 0 (pid", "rank 1 (pid"},
        .device_of_1 = 0},
       {.name = "one does not come",
        .code = ncclSystemError,
        .words = {"2 ranks", "ncclCommInitRank: 1"},
        .comes = false},
       {.name = "one dies", .code = ncclSystemError, .words = {"2 ranks", "ncclCommInitRank: 1"}, .lives = false}}));
  INFO(slip.name);
  emulation::Options options = worker_machine(2);
  options.nccl.milliseconds_to_arrive = 500;
  const bool sound = slip.code == ncclSuccess;
  if (slip.comes && slip.lives) options.nccl.milliseconds_to_arrive = 30'000;
  in_processes(2, options, [&](Rank& rank) {
    const ncclUniqueId id = Member::shared_id(rank);
    const bool first = rank.rank() == 0;
    if (!first && !slip.lives) rank.die();
    if (first || slip.comes) {
      need(cudaSetDevice(first ? 0 : slip.device_of_1), "cudaSetDevice");
      ncclComm_t communicator = nullptr;
      const ncclResult_t result =
          ncclCommInitRank(&communicator, first ? 2 : slip.ranks_of_1, id, first ? 0 : slip.rank_of_1);
      rank.expect(result == slip.code, std::string("the code, not ") + ncclGetErrorString(result));
      if (sound) {
        need(ncclCommDestroy(communicator), "ncclCommDestroy");
      } else {
        rank.expect(communicator == nullptr, "no communicator");
        const std::string lacks = missing(emulation::take_refusal(), slip.words);
        // Which of two comes second depends; both are named then.
        rank.expect(lacks.empty(), lacks);
      }
    }
    if (slip.lives) rank.barrier();
    rank.expect(emulation::not_given_back().empty(), "nothing is left of it");
  });
}

TEST_CASE("nccl processes: an id whose process is gone, or that was used before, is refused") {
  in_processes(3, worker_machine(3), [](Rank& rank) {
    // Rank 2 makes the id, with which ranks 0 and 1 begin; then it dies.
    ncclUniqueId id{};
    if (rank.rank() == 2) need(ncclGetUniqueId(&id), "ncclGetUniqueId");
    id = rank.exchange(id)[2];
    need(cudaSetDevice(rank.rank()), "cudaSetDevice");
    ncclComm_t communicator = nullptr;
    if (rank.rank() < 2) {
      need(ncclCommInitRank(&communicator, 2, id, rank.rank()), "ncclCommInitRank");
      ncclComm_t other = nullptr;
      rank.expect(ncclCommInitRank(&other, 2, id, rank.rank()) == ncclInvalidUsage, "a second time");
      rank.expect(missing(emulation::take_refusal(), {"was used before", "2 ranks"}).empty(), "why");
    }
    rank.barrier();
    if (rank.rank() == 2) rank.die();
    rank.kill_rank(2);  // if it is not gone yet
    // What was begun goes on.
    Part part({.count = 10}, rank.rank(), 2);
    need(part.call(communicator, nullptr), "ncclAllReduce");
    rank.expect(part.difference().empty(), part.difference());
    ncclComm_t other = nullptr;
    rank.expect(ncclCommInitRank(&other, 2, id, rank.rank()) == ncclSystemError, "its process is gone");
    rank.expect(missing(emulation::take_refusal(), {std::to_string(rank.pid(2)), "is gone"}).empty(), "why");
    need(ncclCommDestroy(communicator), "ncclCommDestroy");
  });
}

}  // namespace shardscope::test
