// All-reduces of small messages by words that ranks store into each other's inboxes (peer_words.cuh: the protocol, and
// why two buffers are enough). A thread treats the same words in all phases, so that out may be x.
//
// One-shot: each rank stores its words into all peers' inboxes, waits for theirs, and adds in the order of the ranks.
// Bytes: each rank sends 2 (ranks - 1) times its data and receives as much; one latency.
//
// Two-shot: the words are cut into chunks of whole 16 bytes, one a rank, as even as that allows. Each rank stores every
// peer's chunk into that peer's inbox, adds its own chunk of all, rounds the sums and stores them into all inboxes.
// Bytes: 4 (ranks - 1) / ranks times the data; two latencies. Of messages that are not enough for all ranks, the last
// ones have empty chunks.
//
// Launch: a thread a word and a doorkeeper a block, one block a multiprocessor at most, so that the grid is resident at
// once; how ranks divide the words among threads need not agree.
#include "kernels/cuda/all_reduce.hpp"

#include "kernels/cuda/peer_doorkeeper.cuh"
#include "kernels/cuda/peer_elements.cuh"
#include "kernels/cuda/peer_launch.cuh"

namespace shardscope::cuda {
namespace {

constexpr int kMaxThreads = 512;  // that have data

/// A kernel's view of the arguments.
template <class Element>
struct SumCall {
  PeerCall peers;
  const Element* x;
  Element* out;
  int64_t count;  // elements; the last word may be half a word
};

template <class Element>
__device__ __forceinline__ void one_shot(const SumCall<Element>& call, const Begun& begun, uint32_t first) {
  const PeerCall& peers = call.peers;
  for (int64_t word = spread_thread(); word < peers.words; word += grid_threads()) {
    const uint32_t own = word < grid_threads() ? first : Words<Element>::load(call.x, call.count, word);
    uint32_t received[kMaxPeerRanks] = {};
    if (!receive_all(peers, begun, word, received)) break;
    const float2 sum = add_ranks<Element>(peers, own, received);
    Words<Element>::store(call.out, call.count, word, Words<Element>::pack(sum));
  }
}

template <class Element>
__device__ __forceinline__ void two_shot(const SumCall<Element>& call, const Begun& begun) {
  const PeerCall& peers = call.peers;
  const int64_t chunk = peers.rank * peers.chunk_words;
  bool arrived = true;
  for (int64_t word = spread_thread(); arrived && word < peers.words; word += grid_threads()) {
    if (word < chunk || word >= chunk + peers.chunk_words) continue;
    const uint32_t own = Words<Element>::load(call.x, call.count, word);
    uint32_t received[kMaxPeerRanks] = {};
    arrived = receive_all(peers, begun, word - chunk, received);
    if (!arrived) break;
    const uint32_t sum = Words<Element>::pack(add_ranks<Element>(peers, own, received));
    push_to_all(peers, begun.buffer + peers.result_place + word, marked(begun.number, sum));
    Words<Element>::store(call.out, call.count, word, sum);
  }
  for (int64_t word = spread_thread(); arrived && word < peers.words; word += grid_threads()) {
    const int owner = owner_of(peers, word);
    if (owner == peers.rank) continue;
    uint32_t sum = 0;
    arrived = receive_result(peers, begun, word, owner, sum);
    if (arrived) Words<Element>::store(call.out, call.count, word, sum);
  }
}

template <class Element, bool kTwoShot>
__global__ void __launch_bounds__(kMaxThreads + kWarpSize, 1) all_reduce_kernel(SumCall<Element> call) {
  mark_begin(call.peers.stamps);
  grid_dependency_wait();
  grid_dependency_launch();
  const int64_t thread = spread_thread();
  // Before the call's number is known, which takes as long.
  const uint32_t first = thread < call.peers.words ? Words<Element>::load(call.x, call.count, thread) : 0;
  const Begun begun = begin_call(call.peers);
  if (is_doorkeeper()) keep_door(call.peers, begun);
  for (int64_t word = thread; word < call.peers.words && !begun.failed; word += grid_threads()) {
    push<kTwoShot>(call.peers, begun, word, word == thread ? first : Words<Element>::load(call.x, call.count, word));
  }
  if (!begun.failed) {
    if constexpr (kTwoShot) {
      two_shot(call, begun);
    } else {
      one_shot(call, begun, first);
    }
  }
  end_call(call.peers, begun);
}

template <class Element>
cudaError_t launch_all_reduce(const PeerRank& rank, Shots shots, const AllReduce& arguments, cudaStream_t stream) {
  SumCall<Element> call{.peers = {},
                        .x = static_cast<const Element*>(arguments.x),
                        .out = static_cast<Element*>(arguments.out),
                        .count = arguments.count};
  cudaError_t error = make_call(
      rank, {.kind = CallKind::kSum, .shots = shots, .dtype = arguments.dtype, .rows = 1, .columns = arguments.count},
      Words<Element>::count(arguments.count), call.peers);
  call.peers.stamps = arguments.stamps;
  Launch where{.grid = {}, .block = {}, .shared_bytes = 0, .stream = stream, .programmatic = arguments.programmatic};
  if (error == cudaSuccess) error = spread(call.peers.words, kMaxThreads, where);
  if (error != cudaSuccess) return error;
  if (shots == Shots::kTwo) return launch(where, all_reduce_kernel<Element, true>, call);
  return launch(where, all_reduce_kernel<Element, false>, call);
}

}  // namespace

int64_t peer_inbox_bytes(int ranks, const PeerCapacity& capacity) {
  const PeerLayout layout = peer_layout(ranks, capacity);
  return (2 * layout.buffer_words + layout.partial_words) * static_cast<int64_t>(sizeof(uint64_t));
}

cudaError_t all_reduce(const PeerRank& rank, Shots shots, const AllReduce& arguments, cudaStream_t stream) {
  if (!valid(rank) || arguments.count < 0 || !aligned(arguments.x, kWordDataBytes) ||
      !aligned(arguments.out, kWordDataBytes)) {
    return cudaErrorInvalidValue;
  }
  if (arguments.count == 0) return cudaSuccess;
  if (arguments.x == nullptr || arguments.out == nullptr) return cudaErrorInvalidValue;
  switch (arguments.dtype) {
    case DType::kF32:
      return launch_all_reduce<float>(rank, shots, arguments, stream);
    case DType::kF16:
      return launch_all_reduce<__half>(rank, shots, arguments, stream);
    case DType::kBF16:
      return launch_all_reduce<__nv_bfloat16>(rank, shots, arguments, stream);
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ8_0:
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace shardscope::cuda
