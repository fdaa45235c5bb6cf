// An end for a kernel that never waits and never ends, such as a loop over a flag that the compiler has read once: no
// scheduler turn comes any more. After a time the program says on standard error which thread runs where, and aborts.
#pragma once

namespace shardscope::emulation {

/// Runs while it lives. Uses SIGALRM and the real-time timer of the process.
class Watchdog {
 public:
  explicit Watchdog(int seconds);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();
};

}  // namespace shardscope::emulation
