// One-shot all-reduce. Every 4 bytes of data travel with a 4-byte flag, the number of the call, in one 8-byte store,
// which arrives whole on NVLink and on PCIe: no fence, no second trip for a flag. Each rank stores its words into all
// peers' inboxes, then polls its own inbox until every word carries the call's number, and adds in the order of the
// ranks.
//
// Bytes: each rank sends 2 (ranks - 1) times its data and receives as much; one latency. For messages that fit the
// device's threads at one word each, 270 KB on 132 multiprocessors. Launch: one block of 512 threads a multiprocessor
// at most, so that the grid is resident at once; how ranks divide the words among threads need not agree.
//
// Why two inboxes are enough. Call n uses buffer n % 2 of each inbox, so call n + 2 overwrites what call n left there.
// Let rank r store a word of call n + 2 into the inbox of rank p. Then r's call n + 1 has ended (its stream's order;
// where launched early, grid_dependency_wait). It ended only after r had seen a word of call n + 1 from every peer, p
// among them: a call has at least one word, and r waits for all of them. p stored that word in its call n + 1, which
// began to store only after p's call n had ended, in which p read all it will ever read of buffer n % 2 for call n.
// So p's reads come before r's stores. In the memory model: end and begin of kernels are fences, and the word of call
// n + 1, stored and read between them, makes the two fences an acquire that sees a release.
//
// A call is recognised by its number alone: words of earlier calls, also of longer ones, carry smaller numbers. After
// 2^32 calls numbers repeat: a word that no call has written for exactly 2^32 calls would be taken for new.
//
// The number comes from device memory, since a captured graph repeats its arguments. All blocks read it when they
// begin; the last block to end, by a counter, adds one. It is the last because all have counted, so all have read.
#include "kernels/cuda/all_reduce.hpp"

#include "kernels/cuda/device_limits.hpp"
#include "kernels/cuda/numeric.cuh"

namespace shardscope::cuda {
namespace {

constexpr int kMaxThreads = 512;
constexpr int kWordBytes = 4;  // of data

/// A kernel's view of the arguments. A word is 4 bytes of data.
struct OneShotCall {
  uint64_t* inboxes[kMaxOneShotRanks];  // [2][rank that sent][capacity] words with flags
  OneShotState* state;
  const unsigned char* x;
  unsigned char* out;
  int64_t count;     // elements
  int64_t words;     // the last may be half a word
  int64_t capacity;  // words
  WaitLimit limit;
  int rank;
  int ranks;
};

/// Words of an array of elements; the missing second element of the last word is 0, and not stored.
template <class Element>
struct Words {
  static constexpr int kElements = kWordBytes / static_cast<int>(sizeof(Element));

  static __device__ __forceinline__ uint32_t load(const OneShotCall& call, int64_t word) {
    if constexpr (kElements == 2) {
      if (2 * word + 1 == call.count) {
        return pack2<Element>(to_float(reinterpret_cast<const Element*>(call.x)[2 * word]), 0.0f);
      }
    }
    return reinterpret_cast<const uint32_t*>(call.x)[word];
  }
  static __device__ __forceinline__ void store(const OneShotCall& call, int64_t word, float2 sum) {
    if constexpr (kElements == 1) {
      reinterpret_cast<float*>(call.out)[word] = sum.x;
    } else if (2 * word + 1 == call.count) {
      reinterpret_cast<Element*>(call.out)[2 * word] = from_float<Element>(sum.x);
    } else {
      reinterpret_cast<uint32_t*>(call.out)[word] = pack2<Element>(sum.x, sum.y);
    }
  }
  static __device__ __forceinline__ float2 values(uint32_t word) {
    if constexpr (kElements == 1) {
      return make_float2(__uint_as_float(word), 0.0f);
    } else {
      return unpack2<Element>(word);
    }
  }
};

/// Polls one word of every peer until all carry `number`. False, and the failure noted, when the limit is reached.
__device__ __forceinline__ bool receive(const OneShotCall& call, const uint64_t* box, int64_t word, uint32_t number,
                                        uint32_t (&received)[kMaxOneShotRanks]) {
  Patience patience;
  while (true) {
    int missing = -1;
#pragma unroll
    for (int peer = 0; peer < kMaxOneShotRanks; ++peer) {
      if (peer >= call.ranks || peer == call.rank) continue;
      const uint64_t arrived = load_relaxed_system(box + peer * call.capacity + word);
      received[peer] = static_cast<uint32_t>(arrived);
      if (static_cast<uint32_t>(arrived >> 32) != number) missing = peer;
    }
    if (missing < 0) return true;
    if (patience.exhausted(call.limit)) {
      store_relaxed_system(&call.state->failure, static_cast<uint32_t>(missing) + 1);
      return false;
    }
    poll_pause(box + missing * call.capacity + word);
  }
}

template <class Element>
__device__ __forceinline__ void exchange(const OneShotCall& call, uint32_t number) {
  const int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t buffer = number % 2 * call.ranks * call.capacity;

  for (int64_t word = thread; word < call.words; word += threads) {
    const uint64_t marked = static_cast<uint64_t>(number) << 32 | Words<Element>::load(call, word);
#pragma unroll
    for (int i = 1; i < kMaxOneShotRanks; ++i) {
      // Each rank begins with the peer after it, so that not all store to the same one at once.
      if (i >= call.ranks) continue;
      const int peer = call.rank + i < call.ranks ? call.rank + i : call.rank + i - call.ranks;
      store_relaxed_system(call.inboxes[peer] + buffer + call.rank * call.capacity + word, marked);
    }
  }

  const uint64_t* box = call.inboxes[call.rank] + buffer;
  for (int64_t word = thread; word < call.words; word += threads) {
    uint32_t received[kMaxOneShotRanks] = {};
    if (!receive(call, box, word, number, received)) break;
    const uint32_t own = Words<Element>::load(call, word);
    float2 sum = Words<Element>::values(call.rank == 0 ? own : received[0]);
#pragma unroll
    for (int rank = 1; rank < kMaxOneShotRanks; ++rank) {
      if (rank >= call.ranks) continue;
      const float2 values = Words<Element>::values(rank == call.rank ? own : received[rank]);
      sum.x += values.x;
      sum.y += values.y;
    }
    Words<Element>::store(call, word, sum);
  }
}

template <class Element>
__global__ void __launch_bounds__(kMaxThreads) all_reduce_kernel(OneShotCall call) {
  SHARDSCOPE_SHARED(uint32_t, begun, 2);  // the call's number, and whether an earlier one failed
  grid_dependency_wait();
  grid_dependency_launch();
  if (threadIdx.x == 0) {
    begun[0] = load_acquire_device(&call.state->calls) + 1;
    begun[1] = load_relaxed_system(&call.state->failure);
  }
  __syncthreads();
  if (begun[1] == 0) exchange<Element>(call, begun[0]);
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();  // a release: this block's read of `calls` comes before the last block's store
    if (atomicAdd(&call.state->finished_blocks, 1u) + 1 == gridDim.x) {
      __threadfence();
      atomicExch(&call.state->finished_blocks, 0u);
      store_release_device(&call.state->calls, begun[0]);
    }
  }
}

template <class Element>
cudaError_t launch_all_reduce(const OneShotRank& rank, const AllReduce& arguments, cudaStream_t stream) {
  int multiprocessors = 0;
  if (const cudaError_t error = count_multiprocessors(multiprocessors); error != cudaSuccess) return error;
  OneShotCall call{};
  for (int i = 0; i < kMaxOneShotRanks; ++i) call.inboxes[i] = static_cast<uint64_t*>(rank.inboxes[i]);
  call.state = rank.state;
  call.x = static_cast<const unsigned char*>(arguments.x);
  call.out = static_cast<unsigned char*>(arguments.out);
  call.count = arguments.count;
  call.words = (arguments.count + Words<Element>::kElements - 1) / Words<Element>::kElements;
  call.capacity = rank.capacity_bytes / kWordBytes;
  call.limit = {.abort_word = rank.abort_word, .nanoseconds = rank.wait_ns};
  call.rank = rank.rank;
  call.ranks = rank.ranks;
  if (call.words > call.capacity) return cudaErrorInvalidValue;
  const int64_t whole_warps = (call.words + kWarpSize - 1) / kWarpSize * kWarpSize;
  const int64_t threads = whole_warps < kMaxThreads ? whole_warps : kMaxThreads;
  const int64_t wanted = (call.words + threads - 1) / threads;
  return launch(Launch{.grid = dim3(static_cast<unsigned>(wanted < multiprocessors ? wanted : multiprocessors)),
                       .block = dim3(static_cast<unsigned>(threads)),
                       .shared_bytes = 0,
                       .stream = stream,
                       .programmatic = arguments.programmatic},
                all_reduce_kernel<Element>, call);
}

bool valid(const OneShotRank& rank, const AllReduce& a) {
  const auto aligned = [](const void* pointer, uintptr_t bytes) {
    return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
  };
  bool inboxes = rank.ranks >= 1 && rank.ranks <= kMaxOneShotRanks;
  for (int i = 0; inboxes && i < rank.ranks; ++i) {
    inboxes = aligned(rank.inboxes[i], 8) && (rank.inboxes[i] != nullptr || rank.ranks == 1);
  }
  return inboxes && rank.rank >= 0 && rank.rank < rank.ranks && rank.state != nullptr && rank.capacity_bytes >= 0 &&
         rank.capacity_bytes % kWordBytes == 0 && a.count >= 0 && aligned(a.x, kWordBytes) &&
         aligned(a.out, kWordBytes);
}

}  // namespace

cudaError_t all_reduce_one_shot(const OneShotRank& rank, const AllReduce& arguments, cudaStream_t stream) {
  if (!valid(rank, arguments)) return cudaErrorInvalidValue;
  if (arguments.count == 0) return cudaSuccess;
  switch (arguments.dtype) {
    case DType::kF32:
      return launch_all_reduce<float>(rank, arguments, stream);
    case DType::kF16:
      return launch_all_reduce<__half>(rank, arguments, stream);
    case DType::kBF16:
      return launch_all_reduce<__nv_bfloat16>(rank, arguments, stream);
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ8_0:
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace shardscope::cuda
