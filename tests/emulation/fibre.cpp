#include "tests/emulation/fibre.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <boost/context/preallocated.hpp>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/base/error.hpp"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace shardscope::emulation {
namespace {

// A stack costs memory where it was touched, so it may be larger than the 512 KiB of local memory that a CUDA thread
// can have. AddressSanitizer pays an eighth of it at once.
#ifdef __SANITIZE_ADDRESS__
constexpr size_t kStrideBytes = 256 << 10;
#else
constexpr size_t kStrideBytes = 1 << 20;
#endif
// Below each stack lies a pattern instead of a guard page: pages that are protected one by one are mappings of their
// own, of which a process may have some 65,000. The pattern shares its page with the top of the stack below.
constexpr size_t kPatternBytes = 256;
constexpr size_t kPageBytes = 4096;
constexpr size_t kStackBytes = kStrideBytes - kPatternBytes;
constexpr size_t kMostStacks = size_t{4} << 20;
constexpr uint64_t kPattern = 0xC0FFEE5AFE57AC4B;

/// One region for all stacks, so that "the stack of some thread" is one comparison. The first slot stays empty: the
/// lowest stack overflows into it.
struct StackRegion {
  std::byte* begin = nullptr;
  std::vector<Fibre*> fibres;  // [slot - 1]

  std::byte* stack(size_t slot) const { return begin + slot * kStrideBytes + kPageBytes; }
  std::byte* end() const { return stack(fibres.size()) + kStackBytes; }
};

StackRegion& region() {
  static auto& stacks = *new StackRegion;  // never destroyed, as the fibres
  if (stacks.begin == nullptr) {
    constexpr size_t kBytes = kMostStacks * kStrideBytes;
    void* const memory =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    require(memory != MAP_FAILED, "emulation: no address space for the stacks of fibres");
    madvise(memory, kBytes, MADV_NOHUGEPAGE);  // which would be two megabytes for every stack
    stacks.begin = static_cast<std::byte*>(memory);
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
  require(stacks.fibres.size() + 3 <= kMostStacks, "emulation: too many fibres");
  stacks.fibres.push_back(this);
  slot_ = stacks.fibres.size();
  stack_ = stacks.stack(slot_);
  stack_bytes_ = kStackBytes;
  std::fill_n(pattern(), kPatternBytes / sizeof(uint64_t), kPattern);
  begin_anew();
}

uint64_t* Fibre::pattern() const {
  return reinterpret_cast<uint64_t*>(stack_ - kPatternBytes);
}

#ifdef __SANITIZE_ADDRESS__
__attribute__((no_sanitize("address")))  // frames that overflowed may have poisoned it
#endif
bool Fibre::overflowed() const {
  const uint64_t* const words = pattern();
  uint64_t difference = 0;
  for (size_t i = 0; i < kPatternBytes / sizeof(uint64_t); ++i) difference |= words[i] ^ kPattern;
  return difference != 0;
}

size_t Fibre::stack_bytes() {
  return kStackBytes;
}

bool Fibre::any_owns(const void* address) {
  const StackRegion& stacks = region();
  return address >= stacks.begin && address < static_cast<const void*>(stacks.end());
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
  if (overflowed()) {
#ifdef __SANITIZE_ADDRESS__
    __asan_unpoison_memory_region(pattern(), kPatternBytes);
#endif
    std::fill_n(pattern(), kPatternBytes / sizeof(uint64_t), kPattern);
    // The stack below may hold the frames of a fibre that waits for its next thread.
    if (slot_ > 1) region().fibres[slot_ - 2]->begin_anew();
  }
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
