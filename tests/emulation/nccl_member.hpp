// A rank of NCCL in a process of its own, for the body of in_processes.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/emulation/emulation.hpp"
#include "tests/emulation/nccl_stand.hpp"
#include "tests/emulation/processes.hpp"

namespace shardscope::test {

/// The machine of each process: with a worker, since hosts wait for each other's messages.
inline emulation::Options worker_machine(int devices, uint64_t seed = 0) {
  return {.seed = seed, .devices = devices, .policy = emulation::Policy::kWorker};
}

/// A rank with its device, a stream and a communicator of all ranks.
struct Member {
  using Clock = std::chrono::steady_clock;
  static constexpr char kSeen = 's';

  explicit Member(Rank& its_rank) : rank(its_rank) {
    need(cudaSetDevice(rank.rank()), "cudaSetDevice");
    need(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    need(ncclCommInitRank(&communicator, rank.ranks(), shared_id(rank), rank.rank()), "ncclCommInitRank");
  }

  /// Rank 0's.
  static ncclUniqueId shared_id(Rank& rank) {
    ncclUniqueId id{};
    if (rank.rank() == 0) need(ncclGetUniqueId(&id), "ncclGetUniqueId");
    return rank.exchange(id)[0];
  }

  /// Enqueues; the memory lives as long as the member.
  Part& begin(const Collective& collective) {
    parts.push_back(std::make_unique<Part>(collective, rank.rank(), rank.ranks()));
    need(parts.back()->call(communicator, stream), collective.description().c_str());
    return *parts.back();
  }
  void run(const Collective& collective) {
    const std::string difference = begin(collective).difference();
    rank.expect(difference.empty(), difference);
    parts.clear();
  }

  /// Polls until the communicator has an asynchronous error.
  ncclResult_t wait_for_error(std::chrono::milliseconds limit = std::chrono::seconds(10)) const {
    const auto end = Clock::now() + limit;
    ncclResult_t error = ncclSuccess;
    while (error == ncclSuccess && Clock::now() < end) need(ncclCommGetAsyncError(communicator, &error), "polling");
    return error;
  }
  /// That there is such an error, whose text names all of these; and aborts when all others than the one at fault have
  /// seen theirs.
  void expect_error(ncclResult_t code, const std::vector<std::string>& parts_of_text, int at_fault = -1) {
    const ncclResult_t error = wait_for_error();
    const std::string text = ncclGetLastError(communicator);
    has_seen();
    for (int other = 0; other < rank.ranks(); ++other) {
      const auto end = Clock::now() + std::chrono::seconds(5);
      while (other != at_fault && static_cast<char>(*rank.shared(other)) != kSeen && Clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    rank.expect(error == code, "the code of " + text + ", which is " + ncclGetErrorString(error));
    const std::string lacks = missing(text, parts_of_text);
    rank.expect(lacks.empty(), lacks);
    rank.expect(cudaStreamQuery(stream) == cudaErrorNotReady, "operations do not end before the abort");
    need(ncclCommAbort(communicator), "ncclCommAbort");
    const auto begin = Clock::now();
    need(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    rank.expect(Clock::now() - begin < std::chrono::seconds(10), "the abort frees the stream");
  }
  /// Tells the others that this rank has had its error.
  void has_seen() const { rank.share(&kSeen, 1); }
  void expect_nothing_wrong() {
    need(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    need(ncclCommDestroy(communicator), "ncclCommDestroy");
    const std::string reports = all_reports();
    rank.expect(reports.empty(), reports);
  }
  std::string named(int other) const {
    return "rank " + std::to_string(other) + " (pid " + std::to_string(rank.pid(other)) + ")";
  }

  Rank& rank;
  cudaStream_t stream = nullptr;
  ncclComm_t communicator = nullptr;
  std::vector<std::unique_ptr<Part>> parts;
};

}  // namespace shardscope::test
