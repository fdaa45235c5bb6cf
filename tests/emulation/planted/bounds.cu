// Planted bugs of addresses: past an allocation, before it, freed, of the host, of another device, misaligned, never
// written; and offsets that wrap around in 32 bits.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/cuda/ptx.cuh"
#include "tests/emulation/planted/planted.hpp"

namespace shardscope::planted {
namespace {

using namespace cuda;
using emulation::Fault;

// ---- the tail ----

template <bool kPlanted>
__global__ void tail_off_by_one(const int* values, int count, int* out) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (kPlanted ? i <= count : i < count) {
    const int value = values[i];  // planted: tail_off_by_one
    out[i] = 2 * value;
  }
}

bool run_tail_off_by_one(Stand& stand) {
  constexpr int kCount = 100;
  const int* const values = stand.counting<int>(kCount);
  int* const out = stand.unwritten<int>(kCount);
  stand.start({2, 64}, stand.planted() ? tail_off_by_one<true> : tail_off_by_one<false>, values, kCount, out);
  const std::vector<int> actual = stand.download(out, kCount);
  return actual.front() == 0 && actual.back() == 2 * (kCount - 1);
}

template <bool kPlanted>
__global__ void store_past_end(int count, int* out) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < (kPlanted ? count + 1 : count)) out[i] = i;  // planted: store_past_end
}

bool run_store_past_end(Stand& stand) {
  int* const out = stand.unwritten<int>(21);
  stand.start({1, 32}, stand.planted() ? store_past_end<true> : store_past_end<false>, 21, out);
  return stand.download(out, 21).back() == 20;
}

// ---- a row whose length is no multiple of 16 bytes, loaded by 16 bytes to its end ----

template <bool kPlanted>
__global__ void wide_load_past_row(const uint32_t* row, int count, uint32_t* sum) {
  uint32_t total = 0;
  int i = 4 * static_cast<int>(threadIdx.x);
  for (; kPlanted ? i < count : i + 4 <= count; i += 4 * static_cast<int>(blockDim.x)) {
    const uint4 four = load16(&row[i]);  // planted: wide_load_past_row
    total += four.x + four.y + four.z + four.w;
  }
  if (!kPlanted && i < count) {
    for (; i < count; ++i) total += row[i];
  }
  atomicAdd(sum, total);
}

bool run_wide_load_past_row(Stand& stand) {
  constexpr int kCount = 37;
  const uint32_t* const row = stand.counting<uint32_t>(kCount);
  uint32_t* const sum = stand.zeros<uint32_t>(1);
  stand.start({1, 32}, stand.planted() ? wide_load_past_row<true> : wide_load_past_row<false>, row, kCount, sum);
  return stand.first(sum) == sum_of_counting<uint32_t>(kCount);
}

// ---- before the first element ----

template <bool kPlanted>
__global__ void halo_before_first(const int* values, int* differences) {
  const int i = static_cast<int>(threadIdx.x);
  const int left = kPlanted || i > 0 ? values[i - 1] : 0;  // planted: halo_before_first
  differences[i] = values[i] - left;
}

bool run_halo_before_first(Stand& stand) {
  const int* const values = stand.counting<int>(32, 1);
  int* const differences = stand.unwritten<int>(32);
  stand.start({1, 32}, stand.planted() ? halo_before_first<true> : halo_before_first<false>, values, differences);
  return stand.download(differences, 32) == std::vector<int>(32, 1);
}

// ---- a product of 32 bits: the shard begins at row 70000 of a matrix of more than 2^32 elements ----

template <bool kPlanted>
__global__ void offset_wraps_around(const int* shard, int64_t shard_begin, uint32_t first_row, uint32_t columns,
                                    int* out) {
  const uint32_t row = first_row + threadIdx.x;
  const int64_t offset = kPlanted ? static_cast<int64_t>(row * columns) : static_cast<int64_t>(row) * columns;
  out[threadIdx.x] = shard[offset - shard_begin];  // planted: offset_wraps_around
}

bool run_offset_wraps_around(Stand& stand) {
  constexpr int64_t kFirstRow = 70000;
  constexpr int64_t kColumns = 65000;
  const int* const shard = stand.counting<int>(4 * kColumns);
  int* const out = stand.unwritten<int>(4);
  stand.start({1, 4}, stand.planted() ? offset_wraps_around<true> : offset_wraps_around<false>, shard,
              kFirstRow * kColumns, kFirstRow, kColumns, out);
  return stand.download(out, 4) == std::vector<int>{0, kColumns, 2 * kColumns, 3 * kColumns};
}

// ---- whose memory ----

template <bool kPlanted>
__global__ void host_pointer(const int* values, int* out) {
  out[threadIdx.x] = values[threadIdx.x] + 1;  // planted: host_pointer
}

bool run_host_pointer(Stand& stand) {
  const std::vector<int> on_host(32, 4);
  const int* const on_device = stand.upload(on_host);
  int* const out = stand.unwritten<int>(32);
  stand.start({1, 32}, stand.planted() ? host_pointer<true> : host_pointer<false>,
              stand.planted() ? on_host.data() : on_device, out);
  return stand.download(out, 32) == std::vector<int>(32, 5);
}

/// The program's own file, mapped: read-only, and host memory all the same.
template <bool kPlanted>
__global__ void mapped_file(const int* values, int* out) {
  out[threadIdx.x] = values[threadIdx.x];  // planted: mapped_file
}

bool run_mapped_file(Stand& stand) {
  constexpr size_t kBytes = 128;
  const int file = open("/proc/self/exe", O_RDONLY);
  void* const mapped = mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (mapped == MAP_FAILED) return false;
  const auto* const words = static_cast<const int*>(mapped);
  const std::vector<int> contents(words, words + 32);
  const int* const on_device = stand.upload(contents);
  int* const out = stand.unwritten<int>(32);
  stand.start({1, 32}, stand.planted() ? mapped_file<true> : mapped_file<false>, stand.planted() ? words : on_device,
              out);
  const bool right = stand.download(out, 32) == contents;
  munmap(mapped, kBytes);
  return right;
}

template <bool kPlanted>
__global__ void freed_pointer(const int* values, int* out) {
  out[threadIdx.x] = values[threadIdx.x] + 1;  // planted: freed_pointer
}

bool run_freed_pointer(Stand& stand) {
  int* const values = stand.counting<int>(32, 1);
  int* const out = stand.unwritten<int>(32);
  if (stand.planted()) stand.note(cudaFree(values));
  stand.start({1, 32}, stand.planted() ? freed_pointer<true> : freed_pointer<false>, values, out);
  const std::vector<int> actual = stand.download(out, 32);
  return actual.front() == 2 && actual.back() == 33;
}

template <bool kPlanted>
__global__ void peer_not_enabled(const int* values, int* out) {
  out[threadIdx.x] = values[threadIdx.x] + 1;  // planted: peer_not_enabled
}

bool run_peer_not_enabled(Stand& stand) {
  stand.note(cudaSetDevice(1));
  const int* const of_peer = stand.counting<int>(32);
  stand.note(cudaDeviceSynchronize());
  stand.note(cudaSetDevice(0));
  if (!stand.planted()) stand.note(cudaDeviceEnablePeerAccess(1, 0));
  int* const out = stand.unwritten<int>(32);
  stand.start({1, 32}, stand.planted() ? peer_not_enabled<true> : peer_not_enabled<false>, of_peer, out);
  return stand.download(out, 32).back() == 32;
}

// ---- alignment ----

template <bool kPlanted>
__global__ void misaligned_wide_load(const uint32_t* values, uint32_t* out) {
  const uint4 four = load16(&values[4 * threadIdx.x + (kPlanted ? 1 : 0)]);  // planted: misaligned_wide_load
  out[threadIdx.x] = four.w;
}

bool run_misaligned_wide_load(Stand& stand) {
  const uint32_t* const values = stand.counting<uint32_t>(36);
  uint32_t* const out = stand.unwritten<uint32_t>(8);
  stand.start({1, 8}, stand.planted() ? misaligned_wide_load<true> : misaligned_wide_load<false>, values, out);
  return stand.download(out, 8).back() == 31;
}

// ---- never written ----

template <bool kPlanted>
__global__ void memset_of_too_few_bytes(const float* weights, float* sum) {
  const float total = warp_sum(weights[threadIdx.x] + 1);  // planted: memset_of_too_few_bytes
  if (threadIdx.x == 0) *sum = total;
}

bool run_memset_of_too_few_bytes(Stand& stand) {
  constexpr size_t kCount = 32;
  float* const weights = stand.unwritten<float>(kCount);
  float* const sum = stand.unwritten<float>(1);
  stand.note(cudaMemset(weights, 0, stand.planted() ? kCount : kCount * sizeof(float)));
  stand.start({1, kCount}, stand.planted() ? memset_of_too_few_bytes<true> : memset_of_too_few_bytes<false>, weights,
              sum);
  return stand.first(sum) == 32;
}

template <bool kPlanted>
__global__ void accumulates_into_unwritten(const float* values, float* out) {
  if constexpr (kPlanted) {
    out[threadIdx.x] = out[threadIdx.x] + values[threadIdx.x];  // planted: accumulates_into_unwritten
  } else {
    out[threadIdx.x] = values[threadIdx.x];
  }
}

bool run_accumulates_into_unwritten(Stand& stand) {
  const float* const values = stand.counting<float>(32);
  float* const out = stand.unwritten<float>(32);
  stand.start({1, 32}, stand.planted() ? accumulates_into_unwritten<true> : accumulates_into_unwritten<false>, values,
              out);
  return stand.download(out, 32).back() == 31;
}

}  // namespace

BugFile bounds_bugs() {
  return {
      __FILE__,
      {
          {"tail_off_by_one", run_tail_off_by_one, Fault::kOutOfBounds},
          {"store_past_end", run_store_past_end, Fault::kOutOfBounds},
          {"wide_load_past_row", run_wide_load_past_row, Fault::kOutOfBounds, Plain::kWrongResult},
          {"halo_before_first", run_halo_before_first, Fault::kOutOfBounds, Plain::kWrongResult},
          // 16 GiB before the shard, where there is no device memory at all.
          {"offset_wraps_around", run_offset_wraps_around, Fault::kHostMemory, Plain::kNotRun},
          {"host_pointer", run_host_pointer, Fault::kHostMemory},
          {"mapped_file", run_mapped_file, Fault::kHostMemory},
          {"freed_pointer", run_freed_pointer, Fault::kUseAfterFree, Plain::kNotRun},
          {"peer_not_enabled", run_peer_not_enabled, Fault::kPeerAccess, Plain::kNothing, Orders::kEvery, 2},
          {"misaligned_wide_load", run_misaligned_wide_load, Fault::kMisaligned, Plain::kNotRun},
          {"memset_of_too_few_bytes", run_memset_of_too_few_bytes, Fault::kUninitialised, Plain::kWrongResult},
          {"accumulates_into_unwritten", run_accumulates_into_unwritten, Fault::kUninitialised, Plain::kWrongResult},
      }};
}

}  // namespace shardscope::planted
