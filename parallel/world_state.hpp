// What a World holds, for the communicators: MPI handles, the board, the watch. Private to parallel/; includes mpi.h.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/board.hpp"
#include "parallel/watch.hpp"
#include "parallel/world.hpp"

namespace shardscope::parallel {

struct World::State {
  bool mpi = false;
  int rank = 0;
  int size = 1;
  int host_rank = 0;
  int host_size = 1;
  std::string host;
  std::vector<std::string> hosts;  // of every rank
  std::vector<int> everyone;       // 0 .. size - 1

  MPI_Comm comm = MPI_COMM_NULL;       // all ranks; ours alone
  MPI_Comm host_comm = MPI_COMM_NULL;  // the ranks that share this host's memory
  MPI_Win board_window = MPI_WIN_NULL;
  std::vector<std::byte> own_board;  // without MPI
  Board board;
  Watch watch;   // of waits
  Watch patrol;  // while this rank works
  const char* doing = nullptr;

  /// Handles of communicators. Freeing them is collective, so it happens once, after the clean end's barrier, in order
  /// of creation; a communicator that is destroyed while an exception flies must not wait for its peers.
  struct Lent {
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Win window = MPI_WIN_NULL;
  };
  std::vector<Lent> lent;

  /// World::at_failure, by number.
  std::map<int64_t, std::function<void()>> at_failure;
  int64_t next_at_failure = 0;
  /// look(), which throws if another rank has failed; then what at_failure holds comes before.
  template <class Look>
  void look_at_others(const Look& look) {
    try {
      look();
    } catch (...) {
      for (const auto& [number, act] : at_failure) act();
      throw;
    }
  }

  int exceptions_at_start = std::uncaught_exceptions();
};

/// World::wait for an MPI request.
void wait_request(World& world, MPI_Request& request, std::string_view what, std::span<const int> awaited);

/// Spins a little, yielding; true when the request has ended. `polls`: how often to ask.
bool test_briefly(MPI_Request& request, int polls);

/// World ranks from first_rank on; lives as long as the world.
std::span<const int> members_of(World& world, int first_rank, int group_size);

/// Returns on every member (ascending world ranks) after all of them have called it.
void group_barrier(World& world, std::span<const int> members, std::string_view what);

}  // namespace shardscope::parallel
