#include "kernels/cpu/thread_team.hpp"

#include <pthread.h>
#include <sched.h>

#include <set>
#include <string>

#include "kernels/base/error.hpp"

namespace shardscope::kernels::cpu {
namespace {

// Some 10 us (a pause takes 40 to 140 cycles): longer than the gap between two operations of a layer.
constexpr int kSpins = 400;

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Words that others may sleep on are written with sequential consistency: a notify looks for sleepers first, and with
// a weaker store it could look before the store is seen, find none, and leave one asleep for ever.

int allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return CPU_COUNT(&set);
}

void pin(pthread_t thread, int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  require(core >= 0 && core < CPU_SETSIZE, "a core number beyond CPU_SETSIZE");
  CPU_SET(static_cast<unsigned>(core), &set);
  if (pthread_setaffinity_np(thread, sizeof(set), &set) != 0) {
    throw SystemError("cannot pin a thread to core " + std::to_string(core), "CPU backend",
                      "choose cores that the process may use");
  }
}

}  // namespace

ThreadTeam::ThreadTeam(int threads, const std::vector<int>& cores) : size_(threads) {
  require(threads >= 1, "a thread team needs at least one thread");
  require(cores.empty() || std::ssize(cores) == threads, "cores: one per thread, or none");
  if (!cores.empty()) pin(pthread_self(), cores[0]);
  const auto own_cores = cores.empty() ? allowed_cores() : std::ssize(std::set<int>(cores.begin(), cores.end()));
  spins_ = own_cores >= threads ? kSpins : 0;
  try {
    for (int member = 1; member < threads; ++member) {
      workers_.emplace_back([this, member] { serve(member); });
      if (!cores.empty()) pin(workers_.back().native_handle(), cores[member]);
    }
  } catch (...) {
    size_ = static_cast<int>(workers_.size()) + 1;
    stop_ = true;
    generation_.fetch_add(1);
    generation_.notify_all();
    throw;  // jthread joins
  }
}

ThreadTeam::~ThreadTeam() {
  stop_ = true;
  generation_.fetch_add(1);
  generation_.notify_all();
}

void ThreadTeam::wait_while(const std::atomic<uint32_t>& word, uint32_t value) const {
  for (int i = 0; i < spins_; ++i) {
    if (word.load(std::memory_order_acquire) != value) return;
    pause();
  }
  word.wait(value, std::memory_order_acquire);
}

void ThreadTeam::run_job(Job job, const void* context) {
  job_ = job;
  context_ = context;
  running_.store(static_cast<uint32_t>(size_ - 1), std::memory_order_relaxed);
  generation_.fetch_add(1);
  generation_.notify_all();
  job(context, 0);
  for (uint32_t left = running_.load(std::memory_order_acquire); left != 0;
       left = running_.load(std::memory_order_acquire)) {
    wait_while(running_, left);
  }
}

void ThreadTeam::serve(int member) {
  uint32_t seen = 0;
  while (true) {
    wait_while(generation_, seen);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_) return;
    job_(context_, member);
    if (running_.fetch_sub(1) == 1) running_.notify_one();
  }
}

void ThreadTeam::barrier() {
  if (size_ == 1) return;
  const uint32_t phase = phase_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(size_)) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1);
    phase_.notify_all();
    return;
  }
  wait_while(phase_, phase);
}

}  // namespace shardscope::kernels::cpu
