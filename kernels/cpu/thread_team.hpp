// Persistent threads that run one function together. The calling thread is member 0. Idle members spin for some
// microseconds and then sleep, so that an idle team takes no core and more threads than cores still make progress.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/base/range.hpp"

namespace shardscope::kernels::cpu {

/// The share of member `index` of `members` in `count` items: contiguous and even.
inline Range even_share(int64_t count, int index, int members) {
  return {count * index / members, count * (index + 1) / members};
}

class ThreadTeam {
 public:
  /// threads >= 1. cores: one per member, which is pinned to it (member 0, the caller, too), or empty.
  ThreadTeam(int threads, const std::vector<int>& cores);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return size_; }

  /// Calls work(member) on every member, and returns when all have finished. `work` must not throw. Allocates nothing.
  template <typename Work>
  void run(const Work& work) {
    if (size_ == 1) {
      work(0);
      return;
    }
    run_job([](const void* context, int member) { (*static_cast<const Work*>(context))(member); }, &work);
  }

  /// Within run: waits until every member has come here.
  void barrier();

 private:
  using Job = void (*)(const void* context, int member);
  void run_job(Job job, const void* context);
  void serve(int member);
  /// Spins and then sleeps while `word` is `value`.
  void wait_while(const std::atomic<uint32_t>& word, uint32_t value) const;

  int size_ = 1;
  int spins_ = 0;
  Job job_ = nullptr;
  const void* context_ = nullptr;
  bool stop_ = false;
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<uint32_t> running_{0};
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
  std::vector<std::jthread> workers_;
};

}  // namespace shardscope::kernels::cpu
