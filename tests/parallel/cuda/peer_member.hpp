// Ranks in processes that share device memory: what hosts say to each other, watched by the world (so that a rank that
// dies or stands still ends the others' waits), and sums over peers' memory.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/cuda/peer_sum.hpp"
#include "tests/parallel/cuda/rank_group.hpp"

namespace shardscope::test {

/// The board, and what ranks lay out for each other. Made before the fork.
class PeerPages {
 public:
  static constexpr size_t kMostBytes = 16 << 10;
  struct Shared {
    std::array<std::atomic<uint64_t>, cuda::kMaxPeerRanks> arrived;
    std::array<std::array<std::byte, kMostBytes>, cuda::kMaxPeerRanks> said;
  };

  explicit PeerPages(int ranks) : board(ranks) {
    void* const pages = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check_os(pages == MAP_FAILED ? -1 : 0, "mmap", "pages for test processes");
    shared_ = static_cast<Shared*>(pages);
  }
  PeerPages(const PeerPages&) = delete;
  PeerPages& operator=(const PeerPages&) = delete;
  ~PeerPages() { munmap(shared_, sizeof(Shared)); }

  Shared& shared() const { return *shared_; }

  BoardPages board;

 private:
  Shared* shared_ = nullptr;
};

class WatchedCommunicator final : public parallel::Communicator {
 public:
  WatchedCommunicator(parallel::World& world, const PeerPages& pages) : world_(world), shared_(pages.shared()) {
    everyone_.resize(static_cast<size_t>(world.size()));
    std::iota(everyone_.begin(), everyone_.end(), 0);
  }
  std::string_view name() const override { return "watched"; }
  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  void all_reduce(std::span<float>) override { require(false, "WatchedCommunicator has no sums"); }
  void broadcast(std::span<std::byte>, int) override { require(false, "WatchedCommunicator has no broadcasts"); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    require(mine.size() <= PeerPages::kMostBytes, "WatchedCommunicator: too much at once");
    std::memcpy(shared_.said[static_cast<size_t>(rank())].data(), mine.data(), mine.size());
    barrier();
    for (size_t peer = 0; peer < everyone_.size(); ++peer) {
      std::memcpy(all.data() + peer * mine.size(), shared_.said[peer].data(), mine.size());
    }
    barrier();
  }
  void barrier() override {
    if (meetings_++ == act_at_) act_();
    const uint64_t now = ++shared_.arrived[static_cast<size_t>(rank())];
    world_.wait(
        [&] {
          return std::all_of(everyone_.begin(), everyone_.end(),
                             [&](int peer) { return shared_.arrived[static_cast<size_t>(peer)] >= now; });
        },
        "what hosts say", everyone_);
  }

  /// `act` comes before the meeting (a barrier is one, a gathering two) with that number, from 0 on.
  void at_meeting(int number, std::function<void()> act) {
    act_at_ = number;
    act_ = std::move(act);
  }

 private:
  int meetings_ = 0;
  int act_at_ = -1;
  std::function<void()> act_;
  parallel::World& world_;
  PeerPages::Shared& shared_;
  std::vector<int> everyone_;
};

/// A rank's world, stream and host communicator.
class PeerMember {
 public:
  PeerMember(Rank& rank, const PeerPages& pages, std::chrono::milliseconds timeout = std::chrono::seconds(20),
             int device = -1)
      : member(rank, pages.board, timeout, device),
        host(member.world(), pages),
        stream_{.lend = [this] { return member.stream(); },
                .own = {},
                .programmatic = {},
                .device = device < 0 ? rank.rank() : device} {}

  /// Small inboxes: tests are about what arrives, not how much. And patience with a busy machine.
  parallel::PeerSums sums(parallel::PeerSumOptions options = {.proof_wait = std::chrono::seconds(20)}) {
    options.capacity = {.one_shot_bytes = 4096, .two_shot_bytes = 8192};
    return parallel::make_peer_sums(member.world(), host, stream_, options);
  }

  /// As a backend waits for its stream.
  void finish(parallel::DeviceSum& sum) {
    cudaError_t state = cudaErrorNotReady;
    try {
      member.world().wait(
          [&] {
            sum.check();
            state = cudaStreamQuery(member.stream());
            return state != cudaErrorNotReady;
          },
          "the device", member.world().state().everyone);
    } catch (...) {
      sum.abort();
      throw;
    }
    cuda::check_cuda(state, "cudaStreamQuery");
    sum.check();
  }

  const parallel::DeviceStream& stream() const { return stream_; }

  Member member;
  WatchedCommunicator host;

 private:
  parallel::DeviceStream stream_;
};

/// The machine of each process.
inline emulation::Options peers_machine(int devices, uint64_t seed = 0) {
  emulation::Options options = ranks_machine(devices, seed);
  options.multiprocessors = 2;
  return options;
}

/// The same of a table of GPUs.
inline emulation::Options peers_machine(const emulation::MachineTable& table) {
  emulation::Options options = peers_machine(static_cast<int>(table.gpus.size()));
  options.table = table;
  return options;
}

}  // namespace shardscope::test
