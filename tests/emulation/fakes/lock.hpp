// The one lock of the stand-ins, and the worker that shares it: a thread that lets devices go on while the host does
// something else (Policy::kWorker).
#pragma once

namespace shardscope::emulation {

void lock_for_call();
void unlock_after_call();

/// For the functions that tests call.
class Locked {
 public:
  Locked() { lock_for_call(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked() { unlock_after_call(); }
};

/// With the lock, which is let go meanwhile: until the worker has done something, or a moment has passed.
void wait_for_worker();
/// With the lock, which is let go meanwhile: a moment.
void pause_for_others();

/// With the lock: there is something to do. Starts the worker, if the options want one.
void wake_worker();
/// With the lock, which is let go meanwhile: ends the worker.
void end_worker();

}  // namespace shardscope::emulation
