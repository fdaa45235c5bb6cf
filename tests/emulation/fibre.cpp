#include "tests/emulation/fibre.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <boost/context/preallocated.hpp>
#include <cstdint>
#include <utility>

#include "kernels/base/error.hpp"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace shardscope::emulation {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr size_t kStackBytes = 256 << 10;
#else
constexpr size_t kStackBytes = 64 << 10;
#endif
constexpr size_t kGuardBytes = 4096;
constexpr size_t kRegionBytes = size_t{64} << 30;  // address space only: about a million stacks

/// One region for all stacks, so that "the stack of some thread" is one comparison.
struct StackRegion {
  std::byte* begin = nullptr;
  std::byte* next = nullptr;
};

StackRegion& region() {
  static StackRegion stacks;
  if (stacks.begin == nullptr) {
    void* const memory = mmap(nullptr, kRegionBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    require(memory != MAP_FAILED, "emulation: no address space for the stacks of fibres");
    stacks.begin = stacks.next = static_cast<std::byte*>(memory);
  }
  return stacks;
}

/// The stack is ours; Boost only borrows it.
struct Borrowed {
  boost::context::stack_context allocate() { return {}; }
  void deallocate(boost::context::stack_context&) noexcept {}
};

}  // namespace

Fibre::Fibre(void (*body)(void*), void* argument) : body_(body), argument_(argument) {
  StackRegion& stacks = region();
  require(stacks.next + kGuardBytes + kStackBytes <= stacks.begin + kRegionBytes, "emulation: too many fibres");
  stack_ = stacks.next + kGuardBytes;
  stack_bytes_ = kStackBytes;
  stacks.next = stack_ + stack_bytes_;
  require(mprotect(stack_, stack_bytes_, PROT_READ | PROT_WRITE) == 0, "emulation: no memory for the stack of a fibre");
  begin_anew();
}

bool Fibre::any_owns(const void* address) {
  const StackRegion& stacks = region();
  return address >= stacks.begin && address < static_cast<const void*>(stacks.next);
}

Fibre::Fibre() {
  pthread_attr_t attributes;
  void* stack = nullptr;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
  pthread_attr_getstack(&attributes, &stack, &stack_bytes_);
  pthread_attr_destroy(&attributes);
  stack_ = static_cast<std::byte*>(stack);
}

void Fibre::begin_anew() {
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(stack_, stack_bytes_);
  fake_stack_ = nullptr;
#endif
  boost::context::stack_context stack;
  stack.sp = stack_ + stack_bytes_;
  stack.size = stack_bytes_;
  ::new (context_) boost::context::fiber(std::allocator_arg, boost::context::preallocated(stack.sp, stack.size, stack),
                                         Borrowed{}, [this](boost::context::fiber&&) -> boost::context::fiber {
                                           entered();
                                           body_(argument_);
                                           __builtin_unreachable();
                                         });
}

void Fibre::switch_to(Fibre& from, Fibre& to) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&from.fake_stack_, to.stack_, to.stack_bytes_);
#endif
  std::move(to.context()).resume_with([&from](boost::context::fiber&& caller) {
    ::new (from.context_) boost::context::fiber(std::move(caller));
    return boost::context::fiber{};
  });
  from.entered();
}

void Fibre::entered() {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
#endif
}

}  // namespace shardscope::emulation
