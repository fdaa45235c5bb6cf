// The other ranks of a rehearsed group on a host where ranks share memory bandwidth: each a thread with a backend at
// the place of that rank and its shard, which works while the rehearsed rank is measured. They wait for nobody, and
// nobody waits for what they compute.
#pragma once

#include <memory>
#include <vector>

#include "kernels/backend.hpp"
#include "parallel/shard_plan.hpp"
#include "runtime/decoder.hpp"
#include "runtime/generate/generate.hpp"
#include "runtime/measure/rehearsal_model.hpp"
#include "runtime/model/open_model.hpp"

namespace shardscope::runtime {

/// What all of them work on. Outlives them.
struct CoRunnerWork {
  const OpenedModel& model;
  const parallel::ShardPlan& plan;
  DecoderOptions shape;
  std::vector<std::vector<GenerationRequest>> requests;  // of each point
  std::vector<kernels::KvPart> read;                     // of each point, by a measurement of bandwidth
};

class CoRunners {
 public:
  /// Of every rank but `rehearsed`; loads their shards, one after another. The rehearsed rank has the place of rank 0,
  /// which has its place. Throws what a thread threw.
  CoRunners(const CoRunnerWork& work, int rehearsed, const RehearsalOptions& options);
  CoRunners(const CoRunners&) = delete;
  CoRunners& operator=(const CoRunners&) = delete;
  ~CoRunners();

  /// From here on, until rest(): each makes the generation of that point, then its last decode step again and again;
  /// or reads what its steps read; read() returns when each has read all once. Throws what a thread threw.
  void generate(size_t point);
  void read(size_t point);
  /// Returns when all are at rest. Throws what a thread threw.
  void rest();

 private:
  class Thread;
  std::vector<std::unique_ptr<Thread>> threads_;
};

}  // namespace shardscope::runtime
