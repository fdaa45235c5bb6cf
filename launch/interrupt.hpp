// SIGINT, SIGTERM and SIGHUP during a measurement: what was measured is written and named before the process ends,
// whatever the main thread is doing. mpirun gives a second between SIGTERM and SIGKILL, less once the first rank has
// ended, so nothing waits for a generation.
#pragma once

#include <functional>
#include <memory>

namespace shardscope::launch {

/// While it lives, a signal calls `act` once, on a thread of its own, and then ends the process with status 1. `act`
/// gets the signal's name ("SIGINT"). A second signal ends the process at once, unless it comes so soon that it is the
/// same event (`timeout` signals its child and then the whole group). One at a time in a process.
class InterruptWatch {
 public:
  explicit InterruptWatch(std::function<void(const char* signal)> act);
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;
  /// The earlier handlers are back. Does not return when a signal has come: `act` is ending the process.
  ~InterruptWatch();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shardscope::launch
