// Probes of blocks and grids: barriers that vote, coordinates, groups of asynchronous copies, atomics, the order in
// which threads come, and blocks that wait for each other.
#include "kernels/cuda/ptx.cuh"
#include "tests/emulation/probes/probes.hpp"

namespace shardscope::probes {
namespace {

using namespace cuda;

__global__ void barrier_votes_kernel(const int* predicates, BarrierVotes* results) {
  const int predicate = predicates[threadIdx.x];
  BarrierVotes votes{};
  votes.any = __syncthreads_or(predicate);
  votes.all = __syncthreads_and(predicate);
  votes.count = __syncthreads_count(predicate);
  results[threadIdx.x].any = votes.any;
  results[threadIdx.x].all = votes.all;
  results[threadIdx.x].count = votes.count;
}

__global__ void identify_kernel(uint32_t* out) {
  const uint32_t block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const uint32_t thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const uint32_t id = block * (blockDim.x * blockDim.y * blockDim.z) + thread;
  out[id] = id;
}

template <int kPending>
__global__ void copy_groups_kernel(int read, const int* values, int* out) {
  SHARDSCOPE_SHARED(int, groups, 3 * 32 * 4);
  for (int group = 0; group < 3; ++group) {
    const int at = (group * 32 + static_cast<int>(threadIdx.x)) * 4;
    cp_async16(&groups[at], &values[at]);
    cp_async_commit();
  }
  cp_async_wait<kPending>();
  out[threadIdx.x] = groups[(read * 32 + static_cast<int>(threadIdx.x)) * 4];
  cp_async_wait<0>();
}

__global__ void copy_nothing_kernel(const int* values, int* out) {
  SHARDSCOPE_SHARED(int, tile, 32 * 4);
  const unsigned at = 4 * threadIdx.x;
  cp_async16(&tile[at], &values[at], false);
  cp_async_commit();
  cp_async_commit();  // an empty group
  cp_async_wait<1>();
  for (unsigned i = at; i < at + 4; ++i) out[i] = tile[i];
  cp_async_wait<0>();
}

__global__ void atomics_kernel(AtomicResults* results, unsigned* olds) {
  const unsigned id = blockIdx.x * blockDim.x + threadIdx.x;
  const int signed_id = static_cast<int>(id);
  olds[id] = atomicAdd(&results->sum, 1u);
  atomicAdd(&results->signed_sum, -signed_id);
  atomicAdd(&results->float_sum, 0.5f);
  atomicMax(&results->largest, id);
  atomicMin(&results->smallest, id + 3);
  atomicMax(&results->signed_largest, -signed_id - 1);
  atomicMin(&results->signed_smallest, -signed_id);
  atomicMax(&results->largest_wide, (1ull << 40) + id);
  atomicXor(&results->xored_wide, ((1ull << 40) + 1) << (id % 16));
  unsigned seen = atomicAdd(&results->multiplied, 0u);
  while (true) {
    const unsigned before = atomicCAS(&results->multiplied, seen, 3 * seen);
    if (before == seen) break;
    seen = before;
  }
  atomicAdd(&results->exchanged_sum, atomicExch(&results->exchanged, id + 1));
  atomicAdd_system(&results->system_sum, 2u);
}

__global__ void record_order_kernel(unsigned* counter, unsigned* order) {
  order[atomicAdd(counter, 1u)] = blockIdx.x * blockDim.x + threadIdx.x;
}

__global__ void ping_pong_blocks_kernel(unsigned turns, uint32_t* flags, uint32_t* out) {
  const unsigned own = blockIdx.x;
  for (unsigned turn = 1; turn <= turns; ++turn) {
    if (own == 0) store_release_device(&flags[0], turn);
    while (load_acquire_device(&flags[1 - own]) < turn) poll_pause(&flags[1 - own]);
    if (own == 1) store_release_device(&flags[1], turn);
  }
  out[own] = turns;
}

__global__ void meet_kernel(unsigned* counter) {
  atomicAdd(counter, 1u);
  if (threadIdx.x == 0) {
    while (load_acquire_device(counter) < gridDim.x * blockDim.x) poll_pause(counter);
  }
  __syncthreads();
}

__global__ void large_local_array_kernel(int* out) {
  volatile int values[40000];
  for (int i = 0; i < 40000; ++i) values[i] = i - 39999 + static_cast<int>(threadIdx.x);
  __syncthreads();
  out[threadIdx.x] = values[39999];
}

__device__ __attribute__((noinline)) int recurse_by(int depth, int first) {
  volatile int values[4096];
  for (int i = 0; i < 4096; ++i) values[i] = first + i;
  if (depth > 1) values[1] = recurse_by(depth - 1, values[0] + 1);
  return values[1];
}

__global__ void recurse_kernel(int depth, int* out) {
  const int last = recurse_by(depth, 0);
  __syncthreads();
  out[threadIdx.x] = last;
}

}  // namespace

cudaError_t barrier_votes(unsigned threads, const int* predicates, BarrierVotes* results) {
  return launch({1, threads}, barrier_votes_kernel, predicates, results);
}

cudaError_t identify(dim3 grid, dim3 block, uint32_t* out, size_t shared_bytes) {
  return launch({grid, block, shared_bytes}, identify_kernel, out);
}
cudaError_t allow_identify_shared_bytes(size_t bytes) {
  return allow_shared_bytes(identify_kernel, bytes);
}

cudaError_t copy_groups(int pending, int read, const int* values, int* out) {
  void (*const kernels[])(int, const int*, int*) = {copy_groups_kernel<0>, copy_groups_kernel<1>, copy_groups_kernel<2>,
                                                    copy_groups_kernel<3>};
  return launch({1, 32}, kernels[pending], read, values, out);
}

cudaError_t copy_nothing(const int* values, int* out) {
  return launch({1, 32}, copy_nothing_kernel, values, out);
}

cudaError_t atomics(unsigned blocks, unsigned threads, AtomicResults* results, unsigned* olds) {
  return launch({blocks, threads}, atomics_kernel, results, olds);
}

cudaError_t record_order(unsigned blocks, unsigned threads, unsigned* counter, unsigned* order, cudaStream_t stream) {
  return launch({blocks, threads, 0, stream}, record_order_kernel, counter, order);
}

cudaError_t ping_pong_blocks(unsigned turns, uint32_t* flags, uint32_t* out) {
  return launch({2, 1}, ping_pong_blocks_kernel, turns, flags, out);
}

cudaError_t meet(unsigned blocks, unsigned threads, unsigned* counter) {
  return launch({blocks, threads, 0, nullptr}, meet_kernel, counter);
}

cudaError_t large_local_array(int* out) {
  return launch({1, 32, 0, nullptr}, large_local_array_kernel, out);
}

cudaError_t recurse(int depth, int* out) {
  return launch({1, 32, 0, nullptr}, recurse_kernel, depth, out);
}

}  // namespace shardscope::probes
