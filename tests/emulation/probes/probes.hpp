// Kernels that show one behaviour of the emulation each, for its tests: warp operations, barriers, copies, atomics,
// flags, orders, and accesses that are counted. Each function enqueues one kernel on `stream` of the current device;
// pointers are device memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string_view>

namespace shardscope::probes {

// ---- warps.cu -------------------------------------------------------------------------------------------------------

enum class ShuffleKind : uint8_t { kIndex, kUp, kDown, kXor };

/// The lanes of `mask` shuffle values[lane] with arguments[lane] (source, delta or lane mask); the others leave
/// out[lane] as it is. values, arguments, out [32]. T: int, float, uint64_t or uint16_t.
template <class T>
cudaError_t shuffle(ShuffleKind kind, uint32_t mask, int width, const T* values, const int* arguments, T* out);

struct VoteResults {
  uint32_t ballot;
  int any;
  int all;
  uint32_t active;  // __activemask() before the votes
};
/// predicates, results [32]; the lanes of `mask` take part.
cudaError_t vote(uint32_t mask, const int* predicates, VoteResults* results);

/// sums[lane] = warp_sum(values[lane]), maxima likewise. [32]
cudaError_t reduce(const float* values, float* sums, float* maxima);

/// d [16][8] += a [16][16] b [16][8], by one mma whose fragments are filled as the PTX ISA lays them out.
cudaError_t multiply_tile(bool bf16, const float* a, const float* b, float* d);

/// out[lane] = 31 - lane, by a shuffle of threadIdx.x. [32]
cudaError_t reverse_lanes(unsigned* out);

/// rounded[i] = __float2int_rn(values[i]), saturated[i] = __saturatef(values[i]). One block of `count` threads.
cudaError_t convert(const float* values, unsigned count, int* rounded, float* saturated);

// ---- blocks.cu ------------------------------------------------------------------------------------------------------

struct BarrierVotes {
  int any;
  int all;
  int count;
};
/// predicates, results [threads]: one block.
cudaError_t barrier_votes(unsigned threads, const int* predicates, BarrierVotes* results);

/// out[linear thread id of the grid] = linear thread id, from all coordinates and extents. Anything else stays.
cudaError_t identify(dim3 grid, dim3 block, uint32_t* out, size_t shared_bytes = 0);
cudaError_t allow_identify_shared_bytes(size_t bytes);

/// Three groups of one copy each, of which all but the last `pending` (0 to 3) are waited for; then out[lane] is the
/// word of this lane in group `read`. values [3][32][4], out [32].
cudaError_t copy_groups(int pending, int read, const int* values, int* out);

/// A copy with `valid` false: out [32][4] is what it left.
cudaError_t copy_nothing(const int* values, int* out);

struct AtomicResults {
  unsigned sum;
  int signed_sum;
  float float_sum;
  unsigned largest;
  unsigned smallest;
  int signed_largest;
  int signed_smallest;
  unsigned long long largest_wide;
  unsigned long long xored_wide;
  unsigned multiplied;     // by compare-and-swap
  unsigned exchanged;      // holds one value; the others were returned
  unsigned exchanged_sum;  // of what the exchanges returned
  unsigned system_sum;
};
/// Every thread of the grid applies each atomic once. olds [blocks * threads]: what its atomicAdd returned.
cudaError_t atomics(unsigned blocks, unsigned threads, AtomicResults* results, unsigned* olds);

/// order[n] = the linear id of the n-th thread to come by.
cudaError_t record_order(unsigned blocks, unsigned threads, unsigned* counter, unsigned* order, cudaStream_t stream);

/// Two blocks that hand a number to each other `turns` times. flags [2], out [2].
cudaError_t ping_pong_blocks(unsigned turns, uint32_t* flags, uint32_t* out);

/// All threads of the grid wait for each other, one of each block polling. counter: 0.
cudaError_t meet(unsigned blocks, unsigned threads, unsigned* counter);

/// One warp; each thread fills an array of its own of 40,000 words. out[lane] is the last of them, the lane. [32]
cudaError_t large_local_array(int* out);
/// One warp, which calls itself `depth` times with some 16 KiB of local memory each, then meets at a barrier. out [32]
cudaError_t recurse(int depth, int* out);

// ---- streams.cu -----------------------------------------------------------------------------------------------------

/// *out = *in + increment
cudaError_t add(const int* in, int increment, int* out, cudaStream_t stream);

/// Raises own[0] turn by turn and waits for peer[0]: one side of a conversation between kernels. *out = turns.
cudaError_t converse(unsigned turns, uint32_t* own, const uint32_t* peer, uint32_t* out, cudaStream_t stream);

/// Like wait_at_least: *out = 1 if `flag` reached `value` in time, else 0.
cudaError_t wait_with_limit(const uint32_t* flag, uint32_t value, const uint32_t* abort_word, uint64_t nanoseconds,
                            int* out, cudaStream_t stream);

/// Lets its dependent kernel start, then waits until `flag` is raised. *out = 1.
cudaError_t wait_for_dependent(const uint32_t* flag, int* out, cudaStream_t stream);
/// Raises `flag` at once, then waits for what it depends on and passes *in on to *out.
cudaError_t raise_before_wait(bool programmatic, uint32_t* flag, const int* in, int* out, cudaStream_t stream);

/// Never ends: counts in local memory while *flag, which the compiler may read once, is 0.
cudaError_t spin(const uint32_t* flag);

/// Calls __trap().
cudaError_t trap(cudaStream_t stream);

// ---- accesses.cu ----------------------------------------------------------------------------------------------------

/// One warp copies 32 x `rounds` words: in the round r lane i loads in[r][first + i * stride].
cudaError_t copy_words(int rounds, int first, int stride, const uint32_t* in, int in_words_per_round, uint32_t* out);
/// One warp copies 32 x 16 bytes. in, out [32][4]
cudaError_t copy_wide(const uint32_t* in, uint32_t* out);
/// One warp writes words of shared memory at lane * write_stride and reads them at lane * read_stride. out [32]
cudaError_t shared_strides(int write_stride, int read_stride, uint32_t* out);
/// One warp writes and reads 16 bytes a lane of shared memory. out [32][4]
cudaError_t shared_wide(uint32_t* out);

/// An 18-byte block, as some weight formats have it.
struct Block18 {
  uint16_t scale;
  uint8_t nibbles[16];
};
/// Copies blocks by assignment: out[i] = in[i].
cudaError_t copy_blocks(int count, const Block18* in, Block18* out);
/// Copies `bytes` bytes by the compiler's own memcpy, of a size that it does not know.
cudaError_t copy_bytes(size_t bytes, const void* in, void* out);

/// *out = sum_of_words(in, count), the function of shared_inline.hpp as the kernel's object has it.
cudaError_t sum_words(const uint32_t* in, int count, uint32_t* out);
/// The address of that object's sum_of_words.
const void* address_of_sum_of_words();

/// Overflows an array of its own by one word.
cudaError_t overflow_local_array(int index, int* out);

}  // namespace shardscope::probes
