// How the ranks of a shared-memory communicator wait: spin a little, yield a little, then sleep on a futex.
//
// A rank publishes its step on its own line; whoever then sees all lines complete is (one of) the last and wakes the
// sleepers. A sleeper counts itself before it looks at the lines for the last time, and the last one looks at that
// count after it has published: with a full fence on both sides one of them sees the other. The sleep has a limit,
// after which the board is read: failed, dead and silent ranks end the wait with an exception.
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <ctime>

#include "parallel/pause.hpp"
#include "parallel/shm_communicator.hpp"

namespace shardscope::parallel {
namespace {

using Clock = std::chrono::steady_clock;

// Measured with tests/parallel/bench_allreduce on two busy cores: a longer spin without yielding is paid in full
// whenever two ranks share a core (5 µs: 14 µs an all-reduce of 576 floats instead of 2.5; 50 µs: 56). With 8 ranks on
// 2 cores the wait counts time in which others computed: 20 µs end in a futex sleep at nearly every step (least TPOT of
// SmolLM2 6.2 to 6.5 ms), 100 µs rarely (5.5 to 5.7 ms), 2 ms keep cores from sleepers that have work (6.7 to 7.3 ms).
constexpr std::chrono::microseconds kSpin{2};
constexpr std::chrono::microseconds kYield{200};
constexpr std::chrono::microseconds kYieldOversubscribed{100};
constexpr int64_t kSleep_ns = 20'000'000;

// Not FUTEX_PRIVATE_FLAG: the word lies in memory that several processes map.
void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  const timespec limit{0, kSleep_ns};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, expected, &limit, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

bool ShmCommunicator::all_arrived() const {
  for (const Line& line : lines_) {
    // Steps wrap; nobody is ever more than one step ahead.
    if (static_cast<int32_t>(line.step.load(std::memory_order_acquire) - step_) < 0) return false;
  }
  return true;
}

void ShmCommunicator::arrive_and_wait(std::string_view what) {
  ++step_;
  lines_[rank_].step.store(step_, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (all_arrived()) {
    if (head_->sleepers.load(std::memory_order_seq_cst) > 0) {
      head_->wakes.fetch_add(1, std::memory_order_seq_cst);
      futex_wake_all(head_->wakes);
    }
  } else if (!spin()) {
    sleep_until_arrived(what);
  }
  world_.state().board.own().beat();
}

bool ShmCommunicator::spin() const {
  const auto start = Clock::now();
  const auto spin_end = start + (oversubscribed_ ? Clock::duration{} : kSpin);
  while (Clock::now() < spin_end) {
    for (int i = 0; i < 16; ++i) {
      if (all_arrived()) return true;
      spin_pause();
    }
  }
  // The other may stand behind us in this core's queue, or behind a stranger's process.
  const auto yield_end = start + (oversubscribed_ ? kYieldOversubscribed : kYield);
  do {
    sched_yield();
    if (all_arrived()) return true;
  } while (Clock::now() < yield_end);
  return false;
}

void ShmCommunicator::sleep_until_arrived(std::string_view what) {
  Watch& watch = world_.state().watch;
  bool watching = false;
  for (;;) {
    const uint32_t wakes = head_->wakes.load(std::memory_order_seq_cst);
    head_->sleepers.fetch_add(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const bool arrived = all_arrived();
    const Clock::time_point start = Clock::now();
    if (!arrived) futex_wait(head_->wakes, wakes);
    head_->sleepers.fetch_sub(1, std::memory_order_seq_cst);
    if (arrived || all_arrived()) return;
    if (!watching && Clock::now() - start < std::chrono::nanoseconds(kSleep_ns / 2)) continue;
    if (!watching) watch.begin(what, members_);
    watching = true;
    world_.state().look_at_others([&] { watch.check(); });
  }
}

}  // namespace shardscope::parallel
