// What a kernel compiled for the CPU calls: the emulation behind CUDA's names (emulated_device.hpp). Each function acts
// for the CUDA thread that runs; a null `site` does not exist. None throws: a fault ends the kernel's fibres where they
// stand.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace shardscope::emulation::call {

/// A place in the source, to tell barriers apart.
struct Site {
  const char* file;
  int line;
  bool operator==(const Site&) const = default;
};

enum class Scope : uint8_t { kDevice, kSystem };
enum class Order : uint8_t { kRelaxed, kAcquire, kRelease };
enum class Update : uint8_t { kAdd, kExchange, kMax, kMin, kXor, kCompareExchange };
enum class Shuffle : uint8_t { kIndex, kUp, kDown, kXor };
enum class Vote : uint8_t { kBallot, kAny, kAll };
enum class Reduction : uint8_t { kSum, kMax };

#define SHARDSCOPE_CONST __attribute__((const))
uint3 thread_index() noexcept SHARDSCOPE_CONST;
uint3 block_index() noexcept SHARDSCOPE_CONST;
dim3 block_size() noexcept SHARDSCOPE_CONST;
dim3 grid_size() noexcept SHARDSCOPE_CONST;
#undef SHARDSCOPE_CONST

void* shared_variable(const void* key, size_t bytes, const char* name) noexcept;
void* dynamic_shared() noexcept;

uint4 load16(const void* address) noexcept;
uint2 load8(const void* address) noexcept;
void store16(void* address, uint4 value) noexcept;
void store8(void* address, uint2 value) noexcept;

enum class BarrierVote : uint8_t { kNone, kOr, kAnd, kCount };
int barrier(BarrierVote vote, int predicate, Site site) noexcept;
void sync_warp(uint32_t mask, Site site) noexcept;
uint64_t shuffle(Shuffle kind, uint32_t mask, uint64_t bits, int lane, int width, Site site) noexcept;
uint32_t vote(Vote kind, uint32_t mask, bool predicate, Site site) noexcept;
float reduce(Reduction kind, float value, Site site) noexcept;
void matrix_multiply(bool bf16, float* d, const uint32_t* a, const uint32_t* b, Site site) noexcept;
uint32_t active_mask() noexcept;

uint32_t update(Update kind, uint32_t* address, uint32_t value, uint32_t compare, Scope scope) noexcept;
int32_t update(Update kind, int32_t* address, int32_t value, int32_t compare, Scope scope) noexcept;
uint64_t update(Update kind, uint64_t* address, uint64_t value, uint64_t compare, Scope scope) noexcept;
float update(Update kind, float* address, float value, float compare, Scope scope) noexcept;
uint32_t load_flag(const uint32_t* address, Order order, Scope scope) noexcept;
uint64_t load_flag(const uint64_t* address, Order order, Scope scope) noexcept;
void store_flag(uint32_t* address, uint32_t value, Order order, Scope scope) noexcept;
void store_flag(uint64_t* address, uint64_t value, Order order, Scope scope) noexcept;
void fence(Scope scope) noexcept;
void poll_pause(const void* address) noexcept;
uint64_t nanoseconds() noexcept;

void cp_async(void* shared, const void* global, int bytes, bool valid) noexcept;
void cp_async_commit() noexcept;
void cp_async_wait(int pending) noexcept;

void grid_dependency_wait() noexcept;
void grid_dependency_launch() noexcept;
[[noreturn]] void trap() noexcept;

}  // namespace shardscope::emulation::call
