// Chooses per message size between shared memory (one-shot, two-shot) and MPI, by measuring at the start.
// Private to parallel/.
#pragma once

#include <memory>

#include "parallel/mpi_communicator.hpp"
#include "parallel/shm_communicator.hpp"

namespace shardscope::parallel {

class AutoCommunicator final : public Communicator {
 public:
  /// Collective over the members, all of one host. Measures for at most about half a second; rank 0 decides and tells.
  AutoCommunicator(World& world, MPI_Comm group, const CommunicatorOptions& options);

  std::string_view name() const override { return mpi_from_ <= max_floats_ ? "shm+mpi" : "shm"; }
  int rank() const override { return shm_.rank(); }
  int size() const override { return shm_.size(); }
  using Communicator::all_reduce;
  void all_reduce(std::span<float> data) override;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override { shm_.all_gather(mine, all); }
  void broadcast(std::span<std::byte> data, int root) override { shm_.broadcast(data, root); }
  void barrier() override { shm_.barrier(); }
  SumChoices sum_choices() const override { return choices_; }

 private:
  void measure();

  ShmCommunicator shm_;
  MpiCommunicator mpi_;
  int64_t max_floats_ = 0;
  int64_t mpi_from_ = 0;
  SumChoices choices_;
};

}  // namespace shardscope::parallel
