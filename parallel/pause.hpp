// What a spinning core tells its sibling and the memory system. Private to parallel/.
#pragma once

namespace shardscope::parallel {

inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // `yield` is a no-op on most cores
#endif
}

}  // namespace shardscope::parallel
