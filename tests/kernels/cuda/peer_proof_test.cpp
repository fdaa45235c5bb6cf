// The proof of peer access, all ranks in one process: peers' words arrive, or are counted as missing.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/peer_proof.hpp"
#include "tests/kernels/cuda/conditions.hpp"
#include "tests/kernels/cuda/device_array.hpp"

namespace shardscope::test {
namespace {

constexpr uint64_t kLongWait = 20'000'000'000;

/// Peer access, and for each rank an area, a result, and a stream.
class Proving {
 public:
  explicit Proving(int ranks, uint64_t wait_ns = kLongWait) : wait_ns_(wait_ns) {
    check_cuda(cudaHostAlloc(&abort_word_, sizeof(uint32_t), cudaHostAllocDefault), "cudaHostAlloc");
    *static_cast<uint32_t*>(abort_word_) = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      use(rank);
      for (int peer = 0; peer < ranks; ++peer) {
        if (device_of_rank(peer) == device_of_rank(rank)) continue;
        const cudaError_t error = cudaDeviceEnablePeerAccess(device_of_rank(peer), 0);
        if (error != cudaErrorPeerAccessAlreadyEnabled) check_cuda(error, "cudaDeviceEnablePeerAccess");
      }
      areas_.push_back(DeviceArray<std::byte>::zeros(cuda::peer_proof_bytes(ranks)));
      results_.push_back(DeviceArray<cuda::PeerProofResult>::zeros(1));
      streams_.emplace_back();
      check_cuda(cudaStreamCreateWithFlags(&streams_.back(), cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
      check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // the zeros are there for all streams
    }
  }
  Proving(const Proving&) = delete;
  Proving& operator=(const Proving&) = delete;
  ~Proving() {
    for (cudaStream_t stream : streams_) static_cast<void>(cudaStreamDestroy(stream));
    static_cast<void>(cudaFreeHost(abort_word_));
  }

  int ranks() const { return static_cast<int>(areas_.size()); }
  void use(int rank) const { check_cuda(cudaSetDevice(device_of_rank(rank)), "cudaSetDevice"); }
  void abort() { *static_cast<uint32_t*>(abort_word_) = 1; }
  cuda::PeerProof arguments(int rank, uint32_t round) const {
    cuda::PeerProof proof{.rank = rank,
                          .ranks = ranks(),
                          .areas = {},
                          .round = round,
                          .result = results_[rank].data(),
                          .abort_word = static_cast<const uint32_t*>(abort_word_),
                          .wait_ns = wait_ns_};
    for (int peer = 0; peer < ranks(); ++peer) proof.areas[peer] = areas_[peer].data();
    return proof;
  }
  void enqueue(int rank, uint32_t round) {
    use(rank);
    check_cuda(cudaMemsetAsync(results_[rank].data(), 0, sizeof(cuda::PeerProofResult), streams_[rank]),
               "cudaMemsetAsync");
    check_cuda(cuda::prove_peers(arguments(rank, round), streams_[rank]), "prove_peers");
  }
  cuda::PeerProofResult result(int rank) const {
    use(rank);
    return results_[rank].download()[0];
  }
  /// Changes one word that `from` has sent to `rank`.
  void corrupt(int rank, int from, int64_t word) {
    use(rank);
    std::vector<std::byte> bytes = areas_[rank].download();
    std::byte& byte = bytes[static_cast<size_t>((from * cuda::kProofWords + word) * 8 + 5)];
    byte ^= std::byte{4};
    areas_[rank].upload(bytes);
  }
  /// Exchanges two words that `from` has sent to `rank`.
  void exchange(int rank, int from, int64_t one, int64_t other) {
    use(rank);
    std::vector<std::byte> bytes = areas_[rank].download();
    const auto at = [&](int64_t word) { return bytes.begin() + (from * cuda::kProofWords + word) * 8; };
    std::swap_ranges(at(one), at(one + 1), at(other));
    areas_[rank].upload(bytes);
  }
  /// Puts what `from` has sent to `to` where the words of `as` to `rank` belong.
  void misplace(int from, int to, int as, int rank) {
    use(to);
    const std::vector<std::byte> source = areas_[to].download();
    use(rank);
    std::vector<std::byte> target = areas_[rank].download();
    constexpr int64_t kBytes = cuda::kProofWords * 8;
    std::copy_n(source.begin() + from * kBytes, kBytes, target.begin() + as * kBytes);
    areas_[rank].upload(target);
  }

 private:
  uint64_t wait_ns_;
  void* abort_word_ = nullptr;
  std::vector<DeviceArray<std::byte>> areas_;
  std::vector<DeviceArray<cuda::PeerProofResult>> results_;
  std::vector<cudaStream_t> streams_;
};

constexpr auto kAll = static_cast<uint32_t>(cuda::kProofWords);

}  // namespace

TEST_CASE("prove_peers: all words arrive and are read back, among any number of ranks, round after round") {
  for (const int ranks : {1, 2, 3, 8}) {
    // Fewer multiprocessors than blocks are wanted.
    under_conditions({.devices = ranks, .multiprocessors = ranks == 8 ? 2 : 5, .seeds = ranks == 8 ? 1 : 2}, [&] {
      INFO(ranks << " ranks");
      Proving proving(ranks);
      for (const uint32_t round : {1u, 0xFFFFFFFFu}) {
        for (int rank = 0; rank < ranks; ++rank) proving.enqueue(rank, round);
        for (int rank = 0; rank < ranks; ++rank) {
          const cuda::PeerProofResult result = proving.result(rank);
          for (int peer = 0; peer < cuda::kMaxPeerRanks; ++peer) {
            INFO("rank " << rank << " of peer " << peer);
            CHECK(result.received[peer] == (peer < ranks ? kAll : 0));
            CHECK(result.read_back[peer] == (peer < ranks ? kAll : 0));
          }
        }
      }
    });
  }
}

TEST_CASE("prove_peers: words of a rank that does not come are missing when the wait is over, and only those") {
  under_conditions({.devices = 3, .multiprocessors = 4, .seeds = 2}, [] {
    Proving proving(3, 50'000'000);
    proving.enqueue(0, 7);
    proving.enqueue(2, 7);
    for (const int rank : {0, 2}) {
      const cuda::PeerProofResult result = proving.result(rank);
      CHECK(result.received[1] == 0);
      CHECK(result.received[2 - rank] == kAll);
      CHECK(result.read_back[1] == kAll);  // its area is there, though nobody looks at it
    }
    // Words of an earlier round are none of this one.
    proving.enqueue(0, 8);
    const cuda::PeerProofResult result = proving.result(0);
    CHECK(result.received[2] == 0);
    CHECK(result.received[0] == kAll);
  });
}

TEST_CASE("prove_peers: the abort word ends the wait") {
  under_conditions({.devices = 2, .multiprocessors = 4, .seeds = 1}, [] {
    Proving proving(2);
    proving.abort();
    proving.enqueue(1, 1);
    const cuda::PeerProofResult result = proving.result(1);
    CHECK(result.received[0] == 0);
    CHECK(result.received[1] == kAll);
  });
}

TEST_CASE("prove_peers: words that are damaged, another rank's, or for another rank do not count") {
  under_conditions({.devices = 4, .multiprocessors = 4, .seeds = 1}, [] {
    Proving proving(4, 50'000'000);
    // Rank 0 alone looks again, at what the round has left: as if its peers had sent just that.
    for (int rank = 0; rank < 4; ++rank) proving.enqueue(rank, 5);
    for (int rank = 0; rank < 4; ++rank) CHECK(proving.result(rank).received[1] == kAll);  // and waits for all devices
    proving.corrupt(0, 1, 4711);
    proving.exchange(0, 1, 0, 8191);
    proving.misplace(0, 0, 2, 0);
    proving.misplace(3, 1, 3, 0);
    proving.enqueue(0, 5);
    const cuda::PeerProofResult result = proving.result(0);
    CHECK(result.received[1] == kAll - 3);
    CHECK(result.received[2] == 0);
    CHECK(result.received[3] == 0);
    CHECK(result.received[0] == kAll);
    CHECK(result.read_back[1] == kAll);
  });
}

TEST_CASE("prove_peers: what it refuses") {
  under_conditions({.devices = 2, .seeds = 0}, [] {
    const Proving proving(2);
    const auto refused = [&](auto&& change) {
      cuda::PeerProof proof = proving.arguments(0, 1);
      change(proof);
      return cuda::prove_peers(proof, nullptr) == cudaErrorInvalidValue;
    };
    CHECK(refused([](auto& proof) { proof.ranks = 0; }));
    CHECK(refused([](auto& proof) { proof.ranks = cuda::kMaxPeerRanks + 1; }));
    CHECK(refused([](auto& proof) { proof.rank = 2; }));
    CHECK(refused([](auto& proof) { proof.rank = -1; }));
    CHECK(refused([](auto& proof) { proof.round = 0; }));
    CHECK(refused([](auto& proof) { proof.result = nullptr; }));
    CHECK(refused([](auto& proof) { proof.areas[1] = nullptr; }));
    CHECK(refused([](auto& proof) { proof.areas[1] = static_cast<std::byte*>(proof.areas[1]) + 4; }));
  });
}

}  // namespace shardscope::test
