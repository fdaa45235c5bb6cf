// Which communicator a group gets, and the one of a single rank.
#include "parallel/communicator.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "kernels/base/error.hpp"
#include "parallel/auto_communicator.hpp"
#include "parallel/mpi_communicator.hpp"
#include "parallel/shm_communicator.hpp"

namespace shardscope::parallel {
namespace {

/// A group of one: every sum is its own partial.
class SingleCommunicator final : public Communicator {
 public:
  std::string_view name() const override { return "none"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce(std::span<float>) override {}
  void all_reduce(const kernels::Activations&) override {}
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    require(all.size() == mine.size(), "all_gather: `all` must hold size() times `mine`");
    if (!mine.empty()) std::memmove(all.data(), mine.data(), mine.size());
  }
  void broadcast(std::span<std::byte>, int root) override { require(root == 0, "broadcast: no such root"); }
  void barrier() override {}
};

/// Whether the group's ranks all stand on this host's board.
bool share_a_host(World& world, int first_rank, int group_size) {
  const Board& board = world.state().board;
  const auto here = std::count_if(board.entries().begin(), board.entries().end(), [&](const BoardEntry& entry) {
    const int rank = entry.rank.load();
    return rank >= first_rank && rank < first_rank + group_size;
  });
  return here == group_size;
}

std::unique_ptr<Communicator> make_host_communicator(World& world, const CommunicatorOptions& options, bool one_host) {
  const MPI_Comm group = make_group(world, members_of(world, options.first_rank, options.group_size));
  switch (options.kind) {
    case CommunicatorKind::kShm:
      return std::make_unique<ShmCommunicator>(world, group, options);
    case CommunicatorKind::kMpi:
      return std::make_unique<MpiCommunicator>(world, group, options);
    case CommunicatorKind::kAuto:
    case CommunicatorKind::kNccl:
    case CommunicatorKind::kNcclSymmetric:
    case CommunicatorKind::kOneShot:
    case CommunicatorKind::kTwoShot:
      if (one_host) return std::make_unique<AutoCommunicator>(world, group, options);
      return std::make_unique<MpiCommunicator>(world, group, options);
  }
  throw BugError("make_communicator: unknown kind");
}

}  // namespace

std::string_view communicator_name(CommunicatorKind kind) {
  constexpr std::array kNames = {"auto", "nccl", "nccl-symmetric", "one-shot", "two-shot", "mpi", "shm"};
  return kNames.at(static_cast<size_t>(kind));
}

bool sums_on_hosts(CommunicatorKind kind) {
  return kind == CommunicatorKind::kMpi || kind == CommunicatorKind::kShm;
}

bool sums_on_devices(CommunicatorKind kind) {
  return kind != CommunicatorKind::kAuto && !sums_on_hosts(kind);
}

void Communicator::all_reduce(const kernels::Activations& data) {
  require(data.dtype == kernels::DType::kF32, "all_reduce: activations in the host's memory are fp32");
  all_reduce(std::span(data.floats(), static_cast<size_t>(data.rows * data.stride)));
}

std::unique_ptr<Communicator> make_communicator(World& world, const CommunicatorOptions& options) {
  const int size = options.group_size;
  const int first = options.first_rank;
  require(size >= 1 && first >= 0 && first + size <= world.size(), "make_communicator: group larger than the world");
  require(world.rank() >= first && world.rank() < first + size,
          "make_communicator: called by a rank outside the group");
  require(options.on_device || !sums_on_devices(options.kind), "make_communicator: sums on devices without devices");
  if (size == 1) return std::make_unique<SingleCommunicator>();
  const bool one_host = share_a_host(world, first, size);
  if (options.kind == CommunicatorKind::kShm && !one_host) {
    throw UserError("shared-memory all-reduce needs all its ranks on one host", "--allreduce shm",
                    "use --allreduce mpi or auto");
  }
  std::unique_ptr<Communicator> host = make_host_communicator(world, options, one_host);
  return options.on_device ? options.on_device(world, std::move(host), options) : std::move(host);
}

}  // namespace shardscope::parallel
