// Times the sums that hosts make in their own memory: shared memory of one host, and MPI. Leaves out `auto`, which at
// each size is one of the two.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "parallel/communicator.hpp"
#include "parallel/sum_bench.hpp"

namespace shardscope::parallel {

/// Element i of rank r's part of a sum whose result is known: small integers, so that every order and every element
/// type gives the exact one.
float known_part(int rank, int64_t i);

/// How many of `sums` are not the exact sums of the parts of ranks 0 .. ranks - 1. A NaN is none.
int64_t count_wrong(std::span<const float> sums, int ranks);

class HostSumBench final : public SumBench {
 public:
  /// Collective over the group, and so is what follows. options.kind and options.on_device say nothing here. Sums have
  /// up to options.max_floats elements.
  HostSumBench(World& world, const CommunicatorOptions& options);

  std::span<const Way> ways() const override { return ways_; }
  bool on_devices() const override { return false; }

  /// A sample is one call. Before it every rank fills in its part anew, as a product would, and all meet in a barrier,
  /// the same for all ways; after it every element is checked. So a sample also holds what the ranks leave the barrier
  /// apart: clocks of several hosts agree no better than that. inside_us is what sample_us is.
  SumTimes time(const SumTask& task) override;

 private:
  Communicator& communicator_of(const SumTask& task) const;
  /// One call, us; adds what is wrong with its result.
  double sample(Communicator& communicator, std::span<float> data, int64_t& wrong);

  World& world_;
  std::vector<Way> ways_;
  std::vector<std::unique_ptr<Communicator>> communicators_;  // of each way; nullptr: cannot be used
  Communicator* meeting_ = nullptr;                           // whose barrier is the quickest
  std::vector<float> data_;
};

}  // namespace shardscope::parallel
