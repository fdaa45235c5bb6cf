// A rank of a group in a process of its own, for the body of in_processes: a world whose board lies in pages that were
// shared before the fork, and a communicator of hosts through the test's own exchange. No MPI, no launcher.
#pragma once

#include <cuda_runtime.h>
#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/error.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/cuda/owners.hpp"
#include "parallel/cuda/device_communicator.hpp"
#include "parallel/world_state.hpp"
#include "tests/emulation/emulation.hpp"
#include "tests/emulation/processes.hpp"

namespace shardscope::test {

/// The board's memory. Made before the fork.
class BoardPages {
 public:
  explicit BoardPages(int ranks) : bytes_(parallel::Board::board_bytes(ranks)) {
    pages_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check_os(pages_ == MAP_FAILED ? -1 : 0, "mmap", "a board for test processes");
    parallel::Board::clear(memory(), ranks);
  }
  BoardPages(const BoardPages&) = delete;
  BoardPages& operator=(const BoardPages&) = delete;
  ~BoardPages() { munmap(pages_, bytes_); }

  std::span<std::byte> memory() const { return {static_cast<std::byte*>(pages_), bytes_}; }

 private:
  size_t bytes_;
  void* pages_ = nullptr;
};

/// What hosts say to each other.
class ProcessCommunicator final : public parallel::Communicator {
 public:
  explicit ProcessCommunicator(Rank& rank) : rank_(rank) {}
  std::string_view name() const override { return "processes"; }
  int rank() const override { return rank_.rank(); }
  int size() const override { return rank_.ranks(); }
  void all_reduce(std::span<float> data) override {
    require(data.size() == 1, "ProcessCommunicator: sums of one number");
    const std::vector<float> parts = rank_.exchange(data[0]);
    data[0] = std::accumulate(parts.begin(), parts.end(), 0.0F);
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    rank_.share(mine.data(), mine.size());
    rank_.barrier();
    for (int other = 0; other < size(); ++other) {
      std::memcpy(all.data() + static_cast<size_t>(other) * mine.size(), rank_.shared(other), mine.size());
    }
    rank_.barrier();
  }
  void broadcast(std::span<std::byte> data, int root) override {
    if (rank() == root) rank_.share(data.data(), data.size());
    rank_.barrier();
    if (rank() != root) std::memcpy(data.data(), rank_.shared(root), data.size());
    rank_.barrier();
  }
  void barrier() override { rank_.barrier(); }

 private:
  Rank& rank_;
};

/// The rank's world, device and stream.
class Member {
 public:
  Member(Rank& rank, const BoardPages& pages, std::chrono::milliseconds timeout = std::chrono::seconds(20),
         int device = -1)
      : rank_(rank), world_({}), device_(device < 0 ? rank.rank() : device) {
    parallel::World::State& state = world_.state();
    state.rank = state.host_rank = rank.rank();
    state.size = state.host_size = rank.ranks();
    state.hosts.assign(static_cast<size_t>(rank.ranks()), state.host);
    state.everyone.resize(static_cast<size_t>(rank.ranks()));
    std::iota(state.everyone.begin(), state.everyone.end(), 0);
    state.board = parallel::Board(pages.memory(), rank.rank(), rank.ranks());
    state.board.sign_in(rank.rank());
    state.watch = parallel::Watch(state.board, &state.hosts);
    state.patrol = parallel::Watch(state.board, &state.hosts);
    world_.set_timeout(timeout);
    state.patrol.begin("work of this rank", state.everyone);
    world_.progress("testing");
    cuda::check_cuda(cudaSetDevice(device_), "cudaSetDevice");
    cuda::check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    rank.barrier();  // all have signed in
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;
  ~Member() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  std::unique_ptr<parallel::DeviceCommunicator> communicator(const parallel::DeviceSumOptions& options = {
                                                                 .kind = parallel::CommunicatorKind::kNccl}) {
    return std::make_unique<parallel::DeviceCommunicator>(
        world_, std::make_unique<ProcessCommunicator>(rank_),
        parallel::DeviceStream{
            .lend = [this] { return stream_; }, .own = {}, .programmatic = {}, .stamps = {}, .device = device_},
        options);
  }
  /// As a backend waits for its stream.
  void finish(parallel::DeviceCommunicator& communicator) const {
    const cuda::Event done = cuda::make_event({});
    cuda::check_cuda(cudaEventRecord(done.get(), stream_), "cudaEventRecord");
    communicator.wait(done.get(), "the device");
  }

  /// What the body throws, as main would tell it: "" of nothing, "peer failure", or the error's line. Posts an error of
  /// its own on the board, after all that the body holds has gone.
  std::string outcome(const std::function<void()>& body) {
    try {
      body();
    } catch (const parallel::PeerFailure&) {
      return "peer failure";
    } catch (const Error& error) {
      world_.announce_end(error.exit_code(), error.what());
      return error.what();
    }
    return "";
  }

  /// That the text names all of these.
  void expect_words(const std::string& text, const std::vector<std::string>& words) const {
    for (const std::string& word : words) {
      rank_.expect(text.find(word) != std::string::npos, "'" + word + "' in: " + text);
    }
  }
  /// Nothing reported, and nothing left when the stream is gone, too.
  void expect_clean() {
    for (const emulation::Report& report : emulation::take_reports()) rank_.expect(false, report.message);
    cudaStreamDestroy(std::exchange(stream_, nullptr));
    const std::vector<std::string> left = emulation::not_given_back();
    rank_.expect(left.empty(), left.empty() ? "" : left.front());
  }

  parallel::World& world() { return world_; }
  cudaStream_t stream() const { return stream_; }

 private:
  Rank& rank_;
  parallel::World world_;
  int device_;
  cudaStream_t stream_ = nullptr;
};

/// No report, and nothing left but this rank's inbox, which others may have had open when it gave up, and its stream.
inline void expect_only_inbox_left(const Rank& rank) {
  for (const emulation::Report& report : emulation::take_reports()) rank.expect(false, report.message);
  int allocations = 0;
  for (const std::string& left : emulation::not_given_back()) {
    const bool allocation = left.find("allocation") != std::string::npos;
    rank.expect(allocation || left.find("stream") != std::string::npos, left);
    rank.expect(!allocation || ++allocations == 1, left);
  }
}

/// The machine of each process: with a worker, since hosts wait for each other's messages.
inline emulation::Options ranks_machine(int devices, uint64_t seed = 0) {
  return {.seed = seed, .devices = devices, .policy = emulation::Policy::kWorker};
}

}  // namespace shardscope::test
