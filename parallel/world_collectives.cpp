// Control collectives over all ranks: non-blocking MPI and World::wait. If a wait throws, its request stays pending;
// the only thing left to do then is World::fail.
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "kernels/base/error.hpp"
#include "parallel/mpi_check.hpp"
#include "parallel/world_state.hpp"

namespace shardscope::parallel {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 30;  // MPI counts are int
constexpr int kGroupTag = 4711;

bool test(MPI_Request& request) {
  int done = 0;
  check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  return done != 0;
}

int mpi_count(size_t count) {
  require(count <= kPieceBytes, "World: a collective of more than 2^30 elements");
  return static_cast<int>(count);
}

}  // namespace

void wait_request(World& world, MPI_Request& request, std::string_view what, std::span<const int> awaited) {
  world.wait([&request] { return test(request); }, what, awaited);
}

bool test_briefly(MPI_Request& request, int polls) {
  for (int i = 0; i < polls; ++i) {
    if (test(request)) return true;
  }
  return false;
}

std::span<const int> members_of(World& world, int first_rank, int group_size) {
  return std::span<const int>(world.state().everyone)
      .subspan(static_cast<size_t>(first_rank), static_cast<size_t>(group_size));
}

void group_barrier(World& world, std::span<const int> members, std::string_view what) {
  World::State& s = world.state();
  if (members.size() == 1) return;
  // The others tell the first, which answers when all have told.
  const std::span<const int> first = members.first(1);
  const std::span<const int> others = members.subspan(1);
  std::vector<MPI_Request> requests(others.size(), MPI_REQUEST_NULL);
  const auto all_done = [&requests] {
    int done = 0;
    check_mpi(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
              "MPI_Testall");
    return done != 0;
  };
  if (s.rank != first[0]) {
    requests.resize(2);
    check_mpi(MPI_Isend(nullptr, 0, MPI_BYTE, first[0], kGroupTag, s.comm, &requests[0]), "MPI_Isend");
    check_mpi(MPI_Irecv(nullptr, 0, MPI_BYTE, first[0], kGroupTag, s.comm, &requests[1]), "MPI_Irecv");
    world.wait(all_done, what, first);
    return;
  }
  for (size_t i = 0; i < others.size(); ++i) {
    check_mpi(MPI_Irecv(nullptr, 0, MPI_BYTE, others[i], kGroupTag, s.comm, &requests[i]), "MPI_Irecv");
  }
  world.wait(all_done, what, others);
  for (size_t i = 0; i < others.size(); ++i) {
    check_mpi(MPI_Isend(nullptr, 0, MPI_BYTE, others[i], kGroupTag, s.comm, &requests[i]), "MPI_Isend");
  }
  world.wait(all_done, what, others);
}

void World::barrier(std::string_view what) {
  State& s = *state_;
  if (!s.mpi) return;
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(s.comm, &request), "MPI_Ibarrier");
  wait_request(*this, request, what, s.everyone);
}

void World::broadcast(std::span<std::byte> data, int root, std::string_view what) {
  State& s = *state_;
  require(root >= 0 && root < s.size, "World::broadcast: no such root");
  if (!s.mpi) return;
  for (size_t begin = 0; begin < data.size(); begin += kPieceBytes) {
    const int bytes = static_cast<int>(std::min(kPieceBytes, data.size() - begin));
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibcast(data.data() + begin, bytes, MPI_BYTE, root, s.comm, &request), "MPI_Ibcast");
    wait_request(*this, request, what, s.everyone);
  }
}

std::string World::broadcast_text(const std::string& text, int root, std::string_view what) {
  if (!state_->mpi) return text;
  uint64_t bytes = text.size();
  broadcast(std::as_writable_bytes(std::span(&bytes, 1)), root, what);
  std::string result = rank() == root ? text : std::string(bytes, '\0');
  broadcast(std::as_writable_bytes(std::span(result)), root, what);
  return result;
}

std::vector<double> World::all_gather(std::span<const double> values, std::string_view what) {
  State& s = *state_;
  if (!s.mpi) return {values.begin(), values.end()};
  std::vector<double> all(values.size() * static_cast<size_t>(s.size));
  const int count = mpi_count(values.size());
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgather(values.data(), count, MPI_DOUBLE, all.data(), count, MPI_DOUBLE, s.comm, &request),
            "MPI_Iallgather");
  wait_request(*this, request, what, s.everyone);
  return all;
}

std::vector<std::string> World::all_gather_text(const std::string& text, std::string_view what) {
  State& s = *state_;
  if (!s.mpi) return {text};
  const double own_bytes = static_cast<double>(text.size());
  const std::vector<double> sizes = all_gather(std::span(&own_bytes, 1), what);
  std::vector<int> counts(sizes.size());
  std::transform(sizes.begin(), sizes.end(), counts.begin(), [](double bytes) { return static_cast<int>(bytes); });
  std::vector<int> begins(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), begins.begin(), 0);
  std::string joined(mpi_count(static_cast<size_t>(std::accumulate(sizes.begin(), sizes.end(), 0.0))), '\0');
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgatherv(text.data(), mpi_count(text.size()), MPI_BYTE, joined.data(), counts.data(), begins.data(),
                            MPI_BYTE, s.comm, &request),
            "MPI_Iallgatherv");
  wait_request(*this, request, what, s.everyone);
  std::vector<std::string> texts;
  texts.reserve(counts.size());
  for (size_t i = 0; i < counts.size(); ++i) texts.push_back(joined.substr(begins[i], counts[i]));
  return texts;
}

}  // namespace shardscope::parallel
