// Fibres: contexts with a stack of their own that hand over to one another (Boost.Context; some 10 ns a switch). A
// fibre runs one CUDA thread after another. A fibre that is abandoned in the middle (its kernel was ended by a report)
// is begun anew without unwinding: kernel frames own nothing.
#pragma once

#include <boost/context/fiber.hpp>

#include <cstddef>
#include <cstdint>
#include <new>

namespace shardscope::emulation {

class Fibre {
 public:
  /// A fibre that, when first switched to, calls body(argument), which never returns.
  Fibre(void (*body)(void*), void* argument);
  /// The context that runs already: the scheduler's.
  Fibre();
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;

  /// Suspends `from`, which runs, and goes on with `to`. Returns when somebody switches to `from` again.
  static void switch_to(Fibre& from, Fibre& to);

  /// Back to the state before the first switch.
  void begin_anew();

  /// True if its frames have left its stack, over the pattern below it, and so spoilt the stack of another. Everything
  /// must then be begun anew. A frame that steps over the pattern without touching it goes unseen.
  bool overflowed() const;
  /// Of every fibre but the scheduler's.
  static size_t stack_bytes();

  bool owns(const void* address) const {
    return address >= stack_ && address < static_cast<const void*>(stack_ + stack_bytes_);
  }
  /// True for an address in the stack of any fibre but the scheduler's.
  static bool any_owns(const void* address);

 private:
  void entered();
  uint64_t* pattern() const;

  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  std::byte* stack_ = nullptr;
  size_t stack_bytes_ = 0;
  size_t slot_ = 0;             // of its stack in the region of all stacks
  void* fake_stack_ = nullptr;  // AddressSanitizer's
  // Never destroyed: the destructor of a suspended context would unwind it.
  alignas(boost::context::fiber) std::byte context_[sizeof(boost::context::fiber)] = {};
  boost::context::fiber& context() { return *std::launder(reinterpret_cast<boost::context::fiber*>(context_)); }
};

}  // namespace shardscope::emulation
