// A tensor-parallel group in one process: a thread per rank, a communicator through shared memory of the process. Lets
// the decoder run at any degree in a unit test and under sanitizers, without MPI.
#pragma once

#include <barrier>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/backend.hpp"
#include "parallel/communicator.hpp"
#include "parallel/world.hpp"
#include "runtime/decoder.hpp"

namespace shardscope::test {

/// What the communicators of one group share.
struct Meeting {
  explicit Meeting(int ranks) : barrier(ranks), floats(ranks), bytes(ranks) {}
  std::barrier<> barrier;
  std::vector<std::span<const float>> floats;
  std::vector<std::span<const std::byte>> bytes;
};

class ThreadCommunicator : public parallel::Communicator {
 public:
  ThreadCommunicator(Meeting& meeting, int rank, int size) : meeting_(meeting), rank_(rank), size_(size) {}
  std::string_view name() const override { return "threads"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  using Communicator::all_reduce;
  void all_reduce(std::span<float> data) override {
    meeting_.floats[rank_] = data;
    meeting_.barrier.arrive_and_wait();
    std::vector<float> sum(data.size(), 0.0F);
    for (const std::span<const float> part : meeting_.floats) {
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    meeting_.barrier.arrive_and_wait();  // everybody has read everything
    std::copy(sum.begin(), sum.end(), data.begin());
  }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    meeting_.bytes[rank_] = mine;
    meeting_.barrier.arrive_and_wait();
    for (size_t rank = 0; rank < meeting_.bytes.size(); ++rank) {
      if (!mine.empty()) std::memcpy(all.data() + rank * mine.size(), meeting_.bytes[rank].data(), mine.size());
    }
    meeting_.barrier.arrive_and_wait();
  }

  void broadcast(std::span<std::byte> data, int root) override {
    meeting_.bytes[rank_] = data;
    meeting_.barrier.arrive_and_wait();
    if (rank_ != root && !data.empty()) std::memcpy(data.data(), meeting_.bytes[root].data(), data.size());
    meeting_.barrier.arrive_and_wait();
  }

  void barrier() override { meeting_.barrier.arrive_and_wait(); }

 private:
  Meeting& meeting_;
  int rank_;
  int size_;
};

/// Runs `body` once per rank, each in its own thread with its own single-threaded backend. The first exception is
/// thrown again here; a body that throws must do so on all ranks, else the others wait for ever.
inline void run_group(int ranks, kernels::ActivationMode mode,
                      const std::function<void(runtime::RankContext context)>& body) {
  Meeting meeting(ranks);
  std::vector<std::exception_ptr> failures(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        parallel::World world({});
        ThreadCommunicator communicator(meeting, rank, ranks);
        const auto backend = kernels::make_cpu_backend({.threads = 1, .activations = mode});
        body({*backend, communicator, world});
      } catch (...) {
        failures[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace shardscope::test
