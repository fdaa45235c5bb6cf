// one-shot: everybody gathers all partials and adds them itself: one message latency, (ranks - 1) x count floats
// received. two-shot: everybody receives and adds its own chunk of all partials, then the sums are gathered: twice the
// latency, 2 x count floats.
#include "parallel/mpi_communicator.hpp"

#include <algorithm>

#include "parallel/mpi_check.hpp"
#include "parallel/rank_order_sum.hpp"
#include "parallel/shard_plan.hpp"

namespace shardscope::parallel {
namespace {

constexpr int64_t kOneShotFloats = 4096;  // measured, tests/parallel/bench_allreduce: two-shot wins from about here
constexpr int64_t kLargestPiece = 1 << 20;
constexpr size_t kPieceBytes = size_t{1} << 26;
constexpr int kGroupTag = 4712;
constexpr int kPolls = 200;               // tens of µs inside MPI_Test before the first sleep
constexpr int kPollsOversubscribed = 50;  // MPI yields the core between polls (mpi_yield_when_idle)

}  // namespace

MPI_Comm make_group(World& world, std::span<const int> members) {
  World::State& s = world.state();
  group_barrier(world, members, "making a communicator");  // the calls below wait inside MPI
  MPI_Group everyone = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_group(s.comm, &everyone), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(everyone, static_cast<int>(members.size()), members.data(), &group), "MPI_Group_incl");
  check_mpi(MPI_Comm_create_group(s.comm, group, kGroupTag, &comm), "MPI_Comm_create_group");
  check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  MPI_Group_free(&group);
  MPI_Group_free(&everyone);
  s.lent.push_back({comm, MPI_WIN_NULL});
  return comm;
}

MpiCommunicator::MpiCommunicator(World& world, MPI_Comm group, const CommunicatorOptions& options)
    : world_(world),
      group_(group),
      members_(members_of(world, options.first_rank, options.group_size)),
      polls_(options.oversubscribed ? kPollsOversubscribed : kPolls) {
  check_mpi(MPI_Comm_rank(group_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(group_, &size_), "MPI_Comm_size");
  piece_floats_ = std::clamp<int64_t>(options.max_floats, 1024, kLargestPiece);
  const int64_t chunk = even_share(piece_floats_, 0, size_).size();
  scratch_.resize(size_ * std::max(std::min(piece_floats_, kOneShotFloats), chunk));
  chunk_.resize(chunk);
  for (std::vector<int>* values : {&chunk_counts_, &chunk_begins_, &equal_counts_, &equal_begins_}) {
    values->resize(size_);
  }
}

void MpiCommunicator::finish(MPI_Request request, std::string_view what) {
  if (test_briefly(request, polls_)) {
    world_.state().board.own().beat();
    return;
  }
  wait_request(world_, request, what, members_);
}

void MpiCommunicator::all_reduce(std::span<float> data) {
  const auto count = static_cast<int64_t>(data.size());
  for (int64_t begin = 0; begin < count; begin += piece_floats_) {
    const std::span<float> piece = data.subspan(begin, std::min(piece_floats_, count - begin));
    if (static_cast<int64_t>(piece.size()) <= kOneShotFloats) {
      one_shot(piece);
    } else {
      two_shot(piece);
    }
  }
}

void MpiCommunicator::one_shot(std::span<float> data) {
  const int count = static_cast<int>(data.size());
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgather(data.data(), count, MPI_FLOAT, scratch_.data(), count, MPI_FLOAT, group_, &request),
            "MPI_Iallgather");
  finish(request, "all-reduce");
  sum_in_rank_order([&](int rank) { return scratch_.data() + static_cast<int64_t>(rank) * count; }, size_, count,
                    data.data());
}

void MpiCommunicator::two_shot(std::span<float> data) {
  for (int rank = 0; rank < size_; ++rank) {
    const Range chunk = even_share(static_cast<int64_t>(data.size()), rank, size_);
    chunk_counts_[rank] = static_cast<int>(chunk.size());
    chunk_begins_[rank] = static_cast<int>(chunk.begin);
  }
  const int own = chunk_counts_[rank_];
  for (int rank = 0; rank < size_; ++rank) {
    equal_counts_[rank] = own;
    equal_begins_[rank] = rank * own;
  }
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ialltoallv(data.data(), chunk_counts_.data(), chunk_begins_.data(), MPI_FLOAT, scratch_.data(),
                           equal_counts_.data(), equal_begins_.data(), MPI_FLOAT, group_, &request),
            "MPI_Ialltoallv");
  finish(request, "all-reduce");
  sum_in_rank_order([&](int rank) { return scratch_.data() + static_cast<int64_t>(rank) * own; }, size_, own,
                    chunk_.data());
  check_mpi(MPI_Iallgatherv(chunk_.data(), own, MPI_FLOAT, data.data(), chunk_counts_.data(), chunk_begins_.data(),
                            MPI_FLOAT, group_, &request),
            "MPI_Iallgatherv");
  finish(request, "all-reduce");
}

void MpiCommunicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  require(all.size() == mine.size() * static_cast<size_t>(size_), "all_gather: `all` must hold size() times `mine`");
  require(mine.size() <= kPieceBytes, "all_gather: more than 64 MiB of one rank");
  if (mine.empty()) return;
  const int bytes = static_cast<int>(mine.size());
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgather(mine.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, group_, &request),
            "MPI_Iallgather");
  finish(request, "all-gather");
}

void MpiCommunicator::broadcast(std::span<std::byte> data, int root) {
  require(root >= 0 && root < size_, "broadcast: no such root");
  for (size_t begin = 0; begin < data.size(); begin += kPieceBytes) {
    const int bytes = static_cast<int>(std::min(kPieceBytes, data.size() - begin));
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibcast(data.data() + begin, bytes, MPI_BYTE, root, group_, &request), "MPI_Ibcast");
    finish(request, "broadcast");
  }
}

void MpiCommunicator::barrier() {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(group_, &request), "MPI_Ibarrier");
  finish(request, "barrier");
}

}  // namespace shardscope::parallel
