// What ends a process that goes on for ever or touches what it may not, and says where it is.
#pragma once

namespace shardscope::emulation {

/// While it lives: after so many seconds of this thread's waiting or running, the process says where and aborts.
class Watchdog {
 public:
  explicit Watchdog(int seconds);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  void begin_anew() const;

 private:
  int seconds_;
};

/// From now on, a fault of the process on an address of emulated memory says which memory that is; then it goes its
/// way.
void explain_faults();

}  // namespace shardscope::emulation
