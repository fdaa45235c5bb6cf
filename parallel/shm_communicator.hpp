// Collectives through a shared-memory window: ranks of one host. Private to parallel/; sees MPI only to get the memory.
//
//   window:  Head (futex word, sleepers) | Line of each rank (its step) | slots [2][ranks][slot_bytes]
//
// A collective is one or two steps: write the own slot, arrive (own line = step), wait until all have arrived, read the
// others' slots. Slots alternate between two buffers by call: whoever writes a buffer again has seen everybody arrive
// in the call between, which each rank does only after it has read the earlier one.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>

#include "parallel/communicator.hpp"
#include "parallel/world_state.hpp"

namespace shardscope::parallel {

class ShmCommunicator final : public Communicator {
 public:
  /// Collective over the members, which must share one host; group: from make_group.
  ShmCommunicator(World& world, MPI_Comm group, const CommunicatorOptions& options);

  std::string_view name() const override { return "shm"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  using Communicator::all_reduce;
  void all_reduce(std::span<float> data) override;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  void broadcast(std::span<std::byte> data, int root) override;
  void barrier() override;

  /// From how many floats on each rank adds its chunk and the sums are gathered. The same on all ranks.
  void set_two_shot_from(int64_t floats) { two_shot_from_ = floats; }
  int64_t two_shot_from() const { return two_shot_from_; }

 private:
  struct alignas(64) Head {
    std::atomic<uint32_t> wakes{0};  // futex word
    alignas(64) std::atomic<int32_t> sleepers{0};
  };
  struct alignas(64) Line {
    std::atomic<uint32_t> step{0};
  };

  void map_window(MPI_Comm group);
  void one_shot(std::span<float> data);
  void two_shot(std::span<float> data);
  std::byte* slot(int rank) const;
  float* float_slot(int rank) const;
  void next_buffer() { buffer_ ^= 1; }

  void arrive_and_wait(std::string_view what);
  bool all_arrived() const;
  bool spin() const;
  void sleep_until_arrived(std::string_view what);

  World& world_;
  std::span<const int> members_;  // in the world
  int rank_ = 0;
  int size_ = 1;
  bool oversubscribed_ = false;
  int64_t two_shot_from_ = 0;
  size_t slot_bytes_ = 0;
  uint32_t step_ = 0;
  int buffer_ = 0;
  Head* head_ = nullptr;
  std::span<Line> lines_;
  std::byte* slots_ = nullptr;
};

}  // namespace shardscope::parallel
