// Collectives over MPI's point-to-point and non-blocking collectives: any hosts. Sums are our own, in rank order.
// Private to parallel/; sees MPI.
#pragma once

#include <mpi.h>

#include <vector>

#include "parallel/communicator.hpp"
#include "parallel/world_state.hpp"

namespace shardscope::parallel {

/// Collective over the members (members_of); not freed before the World ends.
MPI_Comm make_group(World& world, std::span<const int> members);

class MpiCommunicator final : public Communicator {
 public:
  /// group: from make_group; lives as long as the world.
  MpiCommunicator(World& world, MPI_Comm group, const CommunicatorOptions& options);

  std::string_view name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  using Communicator::all_reduce;
  void all_reduce(std::span<float> data) override;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  void broadcast(std::span<std::byte> data, int root) override;
  void barrier() override;

 private:
  void one_shot(std::span<float> data);
  void two_shot(std::span<float> data);
  void finish(MPI_Request request, std::string_view what);

  World& world_;
  MPI_Comm group_;
  std::span<const int> members_;  // in the world
  int rank_ = 0;
  int size_ = 1;
  int polls_ = 0;
  int64_t piece_floats_ = 0;
  std::vector<float> scratch_;     // partials received
  std::vector<float> chunk_;       // this rank's sums
  std::vector<int> chunk_counts_;  // two-shot: floats of each rank's chunk
  std::vector<int> chunk_begins_;
  std::vector<int> equal_counts_;  // size_ times this rank's chunk
  std::vector<int> equal_begins_;
};

}  // namespace shardscope::parallel
