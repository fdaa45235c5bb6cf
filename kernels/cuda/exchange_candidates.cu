// The best candidate of each row over all ranks: one trip of 2 words a row (peer_words.cuh: the protocol), the logit
// and the token id, to every peer; each rank picks in the order of the ranks, by a total order, so that all pick the
// same.
//
// Bytes: each rank sends 16 (ranks - 1) a row. Launch: a thread a row and a doorkeeper a block, of one block a
// multiprocessor at most.
#include "kernels/cuda/exchange_candidates.hpp"

#include "kernels/cuda/peer_doorkeeper.cuh"
#include "kernels/cuda/peer_launch.cuh"

namespace shardscope::cuda {
namespace {

constexpr int kMaxThreads = 128;  // that have data
constexpr int64_t kRowWords = 2;

/// A kernel's view of the arguments.
struct CandidatesCall {
  PeerCall peers;
  CandidateOut* best;
  int64_t rows;
};

/// NaN ranks as +inf, and is given as such, as by candidates().
__device__ __forceinline__ uint32_t ranked(uint32_t logit) {
  constexpr uint32_t kInfinity = 0x7F800000u;
  const float value = __uint_as_float(logit);
  return value == value ? logit : kInfinity;
}

/// A candidate as two words: the logit's bits and the token id.
__device__ __forceinline__ bool better(uint2 a, uint2 b) {
  const auto id = static_cast<int32_t>(a.y);
  const auto other_id = static_cast<int32_t>(b.y);
  if (id < 0 || other_id < 0) return id >= 0;
  const float logit = __uint_as_float(a.x);
  const float other = __uint_as_float(b.x);
  return logit > other || (logit == other && id < other_id);
}

__device__ __forceinline__ uint2 load_own(const CandidatesCall& call, int64_t row) {
  const uint2 own = load8(call.best + row);
  return make_uint2(ranked(own.x), own.y);
}

__global__ void __launch_bounds__(kMaxThreads + kWarpSize, 1) exchange_candidates_kernel(CandidatesCall call) {
  const PeerCall& peers = call.peers;
  mark_begin(peers.stamps);
  grid_dependency_wait();
  grid_dependency_launch();
  const int64_t thread = spread_thread();
  const Begun begun = begin_call(peers);
  if (is_doorkeeper()) keep_door(peers, begun);
  if (!begun.failed) {
    for (int64_t row = thread; row < call.rows; row += grid_threads()) {
      const uint2 own = load_own(call, row);
      push<false>(peers, begun, row * kRowWords, own.x);
      push<false>(peers, begun, row * kRowWords + 1, own.y);
    }
  }
  if (!begun.failed) {
    for (int64_t row = thread; row < call.rows; row += grid_threads()) {
      uint32_t logits[kMaxPeerRanks] = {};
      uint32_t ids[kMaxPeerRanks] = {};
      if (!receive_all(peers, begun, row * kRowWords, logits) || !receive_all(peers, begun, row * kRowWords + 1, ids)) {
        break;
      }
      uint2 best = load_own(call, row);
#pragma unroll
      for (int peer = 0; peer < kMaxPeerRanks; ++peer) {
        if (peer >= peers.ranks || peer == peers.rank) continue;
        const uint2 other = make_uint2(logits[peer], ids[peer]);
        if (better(other, best)) best = other;
      }
      store8(call.best + row, best);
    }
  }
  end_call(peers, begun);
}

}  // namespace

cudaError_t exchange_candidates(const PeerRank& rank, const ExchangeCandidates& arguments, cudaStream_t stream) {
  if (!valid(rank) || arguments.rows < 0 || !aligned(arguments.best, alignof(uint2))) return cudaErrorInvalidValue;
  if (arguments.rows == 0) return cudaSuccess;
  if (arguments.best == nullptr || arguments.rows > rank.capacity.one_shot_bytes) return cudaErrorInvalidValue;
  CandidatesCall call{.peers = {}, .best = arguments.best, .rows = arguments.rows};
  cudaError_t error = make_call(rank,
                                {.kind = CallKind::kCandidates,
                                 .shots = Shots::kOne,
                                 .dtype = kernels::DType::kF32,
                                 .rows = arguments.rows,
                                 .columns = 1},
                                arguments.rows * kRowWords, call.peers);
  call.peers.stamps = arguments.stamps;
  Launch where{.grid = {}, .block = {}, .shared_bytes = 0, .stream = stream, .programmatic = arguments.programmatic};
  if (error == cudaSuccess) error = spread(arguments.rows, kMaxThreads, where);
  if (error != cudaSuccess) return error;
  return launch(where, exchange_candidates_kernel, call);
}

}  // namespace shardscope::cuda
