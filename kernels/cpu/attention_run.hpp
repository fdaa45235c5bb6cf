// Shares the attention of a step among the threads: work items of (sequence, some tokens, KV head), and, where those
// are fewer than the threads have room for, parts of the positions that are put together afterwards.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/cpu/kv_cache.hpp"
#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/thread_team.hpp"

namespace shardscope::kernels::cpu {

struct AttentionJob {
  Activations qkv;
  const HeadLayout* heads = nullptr;
  const CpuKvCache* cache = nullptr;
  int64_t layer = 0;
  std::span<const StepSequence> sequences;
  Activations out;
};

/// Reused from call to call; grows with the largest step.
class AttentionRunner {
 public:
  /// One parallel region. Shapes and places were checked by the caller.
  void run(const AttentionJob& job, ThreadTeam& team);

 private:
  struct Item {
    int64_t slot;
    int64_t first_row;  // of qkv
    int64_t tokens;
    int64_t first_position;
    int64_t kv_head;  // global
    Range queries;    // global
  };

  void list_items(const AttentionJob& job);
  int64_t splits(int members) const;
  void work_part(const AttentionJob& job, int64_t unit, int64_t parts, float* scratch) const;
  void combine(const AttentionJob& job, int64_t item, int64_t parts, const float* scratch) const;

  std::vector<Item> items_;
  int64_t scratch_floats_ = 0;  // of one task
  AlignedBytes scratch_;
  std::atomic<int64_t> next_{0};
};

}  // namespace shardscope::kernels::cpu
