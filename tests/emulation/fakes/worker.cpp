#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/emulation/fakes/cudart/executor.hpp"
#include "tests/emulation/fakes/lock.hpp"
#include "tests/emulation/watchdog.hpp"

namespace shardscope::emulation {
namespace {

using std::chrono::microseconds;
using Clock = std::chrono::steady_clock;
using Lock = std::unique_lock<std::mutex>;

// How long the worker keeps the lock, and how often it looks whether others have done what it waits for.
constexpr auto kSlice = microseconds(200);
constexpr auto kShortestPause = microseconds(20);
constexpr auto kLongestPause = microseconds(500);

struct Shared {
  std::mutex mutex;
  std::atomic<int> hosts{0};  // that want the lock: the worker lets them
  std::condition_variable work;
  std::condition_variable change;
  std::thread worker;
  bool end = false;
};

Shared& shared() {
  static auto& it = *new Shared;  // never destroyed: the worker may still wait when the process ends
  return it;
}

/// Lets devices go on for a slice. True if something ran.
bool run_slice() {
  Machine& machine = Machine::get();
  const Watchdog watchdog(machine.options().seconds_to_end);
  // Opening and closing devices' memory takes as long as it has pages: a slice is worth it only if it lasts longer.
  static Clock::duration cost{};
  bool any = false;
  const Clock::time_point begin = Clock::now();
  Clock::time_point opened_at;
  Clock::time_point now;
  {
    const Opened opened;
    opened_at = now = Clock::now();
    const Clock::time_point least = opened_at + 2 * cost;
    const Clock::time_point end = opened_at + std::max<Clock::duration>(kSlice, 4 * cost);
    while (machine.step(executor()) == Step::kRan) {
      any = true;
      now = Clock::now();
      if (now >= end || (shared().hosts > 0 && now >= least)) break;
    }
  }
  cost = (opened_at - begin) + (Clock::now() - now);
  return any;
}

void run_worker() {
  Lock lock(shared().mutex);
  auto pause = kShortestPause;
  while (!shared().end) {
    if (executor().idle() || Machine::get().stopped()) {
      shared().change.notify_all();
      shared().work.wait(lock);
      continue;
    }
    const bool any = run_slice();
    shared().change.notify_all();
    pause = any ? kShortestPause : std::min(pause * 2, kLongestPause);
    if (!any) {
      shared().work.wait_for(lock, pause);
    } else if (Machine::get().random_below(16) == 1) {
      // Devices are sometimes late.
      shared().work.wait_for(lock, microseconds(Machine::get().random_below(300)));
    }
    while (shared().hosts > 0 && !shared().end) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
  }
}

/// The lock is the calling thread's already, and stays so.
template <class Body>
void with_lock(const Body& body) {
  Lock lock(shared().mutex, std::adopt_lock);
  body(lock);
  lock.release();
}

}  // namespace

void lock_for_call() {
  ++shared().hosts;
  shared().mutex.lock();
  --shared().hosts;
}

void unlock_after_call() {
  shared().mutex.unlock();
}

void wait_for_worker() {
  wake_worker();
  with_lock([](Lock& lock) { shared().change.wait_for(lock, microseconds(1000)); });
}

void pause_for_others() {
  with_lock([](Lock& lock) { shared().change.wait_for(lock, kShortestPause); });
}

void wake_worker() {
  if (Machine::get().options().policy != Policy::kWorker || Machine::get().stopped()) return;
  if (!shared().worker.joinable()) shared().worker = std::thread(run_worker);
  shared().work.notify_all();
}

void end_worker() {
  if (!shared().worker.joinable()) return;
  with_lock([](Lock& lock) {
    shared().end = true;
    shared().work.notify_all();
    lock.unlock();
    shared().worker.join();
    lock.lock();
    shared().end = false;
  });
}

}  // namespace shardscope::emulation
