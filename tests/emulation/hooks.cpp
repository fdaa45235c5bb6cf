// The functions that g++ calls at every load and store of code compiled with -fsanitize=thread. Checked kernels are
// compiled so and linked to these instead of ThreadSanitizer's. Calls from host code of the same files do nothing.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tests/emulation/checker.hpp"

namespace {

using shardscope::emulation::check_access;

void check(const void* address, int64_t bytes, bool write, bool aligned, const void* place) {
  check_access({.address = address, .bytes = bytes, .write = write, .place = place, .aligned = aligned});
}

}  // namespace

#define SHARDSCOPE_PLACE __builtin_return_address(0)

// NOLINTBEGIN(bugprone-reserved-identifier): these are the compiler's names.
extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

#define SHARDSCOPE_HOOKS(bytes)                                \
  void __tsan_read##bytes(void* address) {                     \
    check(address, bytes, false, true, SHARDSCOPE_PLACE);      \
  }                                                            \
  void __tsan_write##bytes(void* address) {                    \
    check(address, bytes, true, true, SHARDSCOPE_PLACE);       \
  }                                                            \
  void __tsan_unaligned_read##bytes(void* address) {           \
    check(address, bytes, false, true, SHARDSCOPE_PLACE);      \
  }                                                            \
  void __tsan_unaligned_write##bytes(void* address) {          \
    check(address, bytes, true, true, SHARDSCOPE_PLACE);       \
  }                                                            \
  void __tsan_volatile_read##bytes(void* address) {            \
    check(address, bytes, false, true, SHARDSCOPE_PLACE);      \
  }                                                            \
  void __tsan_volatile_write##bytes(void* address) {           \
    check(address, bytes, true, true, SHARDSCOPE_PLACE);       \
  }                                                            \
  void __tsan_unaligned_volatile_read##bytes(void* address) {  \
    check(address, bytes, false, true, SHARDSCOPE_PLACE);      \
  }                                                            \
  void __tsan_unaligned_volatile_write##bytes(void* address) { \
    check(address, bytes, true, true, SHARDSCOPE_PLACE);       \
  }
SHARDSCOPE_HOOKS(1)
SHARDSCOPE_HOOKS(2)
SHARDSCOPE_HOOKS(4)
SHARDSCOPE_HOOKS(8)
SHARDSCOPE_HOOKS(16)
#undef SHARDSCOPE_HOOKS

void __tsan_read_range(void* address, size_t bytes) {
  check(address, static_cast<int64_t>(bytes), false, false, SHARDSCOPE_PLACE);
}
void __tsan_write_range(void* address, size_t bytes) {
  check(address, static_cast<int64_t>(bytes), true, false, SHARDSCOPE_PLACE);
}

// Calls of the C library's copies in checked kernels end here (the linker's --wrap).
void* __wrap_memcpy(void* target, const void* source, size_t bytes) {
  check(source, static_cast<int64_t>(bytes), false, false, SHARDSCOPE_PLACE);
  check(target, static_cast<int64_t>(bytes), true, false, SHARDSCOPE_PLACE);
  return std::memcpy(target, source, bytes);
}
void* __wrap_memmove(void* target, const void* source, size_t bytes) {
  check(source, static_cast<int64_t>(bytes), false, false, SHARDSCOPE_PLACE);
  check(target, static_cast<int64_t>(bytes), true, false, SHARDSCOPE_PLACE);
  return std::memmove(target, source, bytes);
}
void* __wrap_memset(void* target, int value, size_t bytes) {
  check(target, static_cast<int64_t>(bytes), true, false, SHARDSCOPE_PLACE);
  return std::memset(target, value, bytes);
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)

namespace shardscope::emulation::call {

uint4 load16(const void* address) noexcept {
  check(address, 16, false, true, SHARDSCOPE_PLACE);
  return *static_cast<const uint4*>(address);
}
uint2 load8(const void* address) noexcept {
  check(address, 8, false, true, SHARDSCOPE_PLACE);
  return *static_cast<const uint2*>(address);
}
void store16(void* address, uint4 value) noexcept {
  check(address, 16, true, true, SHARDSCOPE_PLACE);
  *static_cast<uint4*>(address) = value;
}
void store8(void* address, uint2 value) noexcept {
  check(address, 8, true, true, SHARDSCOPE_PLACE);
  *static_cast<uint2*>(address) = value;
}

}  // namespace shardscope::emulation::call
