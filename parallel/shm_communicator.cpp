// The data side of the shared-memory collectives; shm_wait.cpp holds how ranks wait for each other.
#include "parallel/shm_communicator.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "parallel/mpi_check.hpp"
#include "parallel/rank_order_sum.hpp"
#include "parallel/shard_plan.hpp"

namespace shardscope::parallel {
namespace {

constexpr int64_t kSmallestSlotFloats = 1024;
constexpr int64_t kLargestSlotFloats = 32'768;  // two buffers of all ranks stay in a last-level cache
constexpr int64_t kTwoShotFrom = 8192;          // until `auto` has measured

}  // namespace

ShmCommunicator::ShmCommunicator(World& world, MPI_Comm group, const CommunicatorOptions& options)
    : world_(world),
      members_(members_of(world, options.first_rank, options.group_size)),
      oversubscribed_(options.oversubscribed),
      two_shot_from_(kTwoShotFrom) {
  check_mpi(MPI_Comm_rank(group, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(group, &size_), "MPI_Comm_size");
  const int64_t floats = std::clamp(options.max_floats, kSmallestSlotFloats, kLargestSlotFloats);
  slot_bytes_ = (static_cast<size_t>(floats) * sizeof(float) + 63) / 64 * 64;
  map_window(group);
}

void ShmCommunicator::map_window(MPI_Comm group) {
  const size_t control = alignof(Head) + sizeof(Head) + sizeof(Line) * static_cast<size_t>(size_);
  const size_t bytes = control + 2 * static_cast<size_t>(size_) * slot_bytes_;
  MPI_Win window = MPI_WIN_NULL;
  void* own = nullptr;
  check_mpi(
      MPI_Win_allocate_shared(rank_ == 0 ? static_cast<MPI_Aint>(bytes) : 0, 1, MPI_INFO_NULL, group, &own, &window),
      "MPI_Win_allocate_shared");
  world_.state().lent.push_back({MPI_COMM_NULL, window});
  MPI_Aint first_bytes = 0;
  int unit = 0;
  void* first = nullptr;
  check_mpi(MPI_Win_shared_query(window, 0, &first_bytes, &unit, &first), "MPI_Win_shared_query");
  auto* place = static_cast<std::byte*>(first);
  const size_t misplaced = reinterpret_cast<uintptr_t>(place) % alignof(Head);
  if (misplaced != 0) place += alignof(Head) - misplaced;
  head_ = reinterpret_cast<Head*>(place);
  lines_ = {reinterpret_cast<Line*>(place + sizeof(Head)), static_cast<size_t>(size_)};
  slots_ = place + sizeof(Head) + lines_.size_bytes();
  if (rank_ == 0) {
    new (head_) Head;
    for (Line& line : lines_) new (&line) Line;
  }
  for (int buffer : {0, 1}) {  // each rank touches its own slots first: pages on its own NUMA node
    buffer_ = buffer;
    std::memset(slot(rank_), 0, slot_bytes_);
  }
  group_barrier(world_, members_, "making the shared-memory communicator");
}

std::byte* ShmCommunicator::slot(int rank) const {
  return slots_ + (static_cast<size_t>(buffer_) * static_cast<size_t>(size_) + static_cast<size_t>(rank)) * slot_bytes_;
}

float* ShmCommunicator::float_slot(int rank) const {
  return reinterpret_cast<float*>(slot(rank));
}

void ShmCommunicator::all_reduce(std::span<float> data) {
  const auto piece_floats = slot_bytes_ / sizeof(float);
  const bool by_chunks = static_cast<int64_t>(data.size()) >= two_shot_from_;
  for (size_t begin = 0; begin < data.size(); begin += piece_floats) {
    const std::span<float> piece = data.subspan(begin, std::min(piece_floats, data.size() - begin));
    if (by_chunks) {
      two_shot(piece);
    } else {
      one_shot(piece);
    }
  }
}

void ShmCommunicator::one_shot(std::span<float> data) {
  next_buffer();
  std::copy(data.begin(), data.end(), float_slot(rank_));
  arrive_and_wait("all-reduce");
  sum_in_rank_order([this](int rank) { return float_slot(rank); }, size_, static_cast<int64_t>(data.size()),
                    data.data());
}

void ShmCommunicator::two_shot(std::span<float> data) {
  next_buffer();
  const auto count = static_cast<int64_t>(data.size());
  std::copy(data.begin(), data.end(), float_slot(rank_));
  arrive_and_wait("all-reduce");
  // The sums of a chunk go to where its own rank's partial stood, which nobody else reads before the next step.
  const Range own = even_share(count, rank_, size_);
  sum_in_rank_order([&](int rank) { return float_slot(rank) + own.begin; }, size_, own.size(), data.data() + own.begin);
  std::copy_n(data.data() + own.begin, own.size(), float_slot(rank_) + own.begin);
  arrive_and_wait("all-reduce");
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    const Range chunk = even_share(count, rank, size_);
    std::copy_n(float_slot(rank) + chunk.begin, chunk.size(), data.data() + chunk.begin);
  }
}

void ShmCommunicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  require(all.size() == mine.size() * static_cast<size_t>(size_), "all_gather: `all` must hold size() times `mine`");
  for (size_t begin = 0; begin < mine.size(); begin += slot_bytes_) {
    const size_t bytes = std::min(slot_bytes_, mine.size() - begin);
    next_buffer();
    std::memcpy(slot(rank_), mine.data() + begin, bytes);
    arrive_and_wait("all-gather");
    for (int rank = 0; rank < size_; ++rank) {
      std::memcpy(all.data() + static_cast<size_t>(rank) * mine.size() + begin, slot(rank), bytes);
    }
  }
}

void ShmCommunicator::broadcast(std::span<std::byte> data, int root) {
  require(root >= 0 && root < size_, "broadcast: no such root");
  for (size_t begin = 0; begin < data.size(); begin += slot_bytes_) {
    const size_t bytes = std::min(slot_bytes_, data.size() - begin);
    next_buffer();
    if (rank_ == root) std::memcpy(slot(root), data.data() + begin, bytes);
    arrive_and_wait("broadcast");
    if (rank_ != root) std::memcpy(data.data() + begin, slot(root), bytes);
  }
}

void ShmCommunicator::barrier() {
  next_buffer();
  arrive_and_wait("barrier");
}

}  // namespace shardscope::parallel
