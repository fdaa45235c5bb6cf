// Start and end of the MPI session, and the wait that never hangs.
#include "parallel/world.hpp"

#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <numeric>

#include "kernels/base/error.hpp"
#include "parallel/mpi_check.hpp"
#include "parallel/world_state.hpp"

namespace shardscope::parallel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kSpin{5};
constexpr int kYields = 50;
constexpr int64_t kShortestSleep_ns = 20'000;
constexpr int64_t kLongestSleep_ns = 1'000'000;

std::string host_name() {
  std::array<char, 256> name{};
  check_os(gethostname(name.data(), name.size() - 1), "gethostname", "this host");
  return name.data();
}

/// The split is collective and its first steps block inside MPI: ranks arrive here together, out of MPI_Init.
void open_board(World::State& state) {
  check_mpi(MPI_Comm_split_type(state.comm, MPI_COMM_TYPE_SHARED, state.rank, MPI_INFO_NULL, &state.host_comm),
            "MPI_Comm_split_type");
  check_mpi(MPI_Comm_rank(state.host_comm, &state.host_rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(state.host_comm, &state.host_size), "MPI_Comm_size");
  const size_t bytes = Board::board_bytes(state.host_size);
  void* own = nullptr;
  check_mpi(MPI_Win_allocate_shared(state.host_rank == 0 ? static_cast<MPI_Aint>(bytes) : 0, 1, MPI_INFO_NULL,
                                    state.host_comm, &own, &state.board_window),
            "MPI_Win_allocate_shared");
  MPI_Aint first_bytes = 0;
  int unit = 0;
  void* first = nullptr;
  check_mpi(MPI_Win_shared_query(state.board_window, 0, &first_bytes, &unit, &first), "MPI_Win_shared_query");
  const std::span<std::byte> memory(static_cast<std::byte*>(first), bytes);
  if (state.host_rank == 0) Board::clear(memory, state.host_size);
  check_mpi(MPI_Barrier(state.host_comm), "MPI_Barrier");
  state.board = Board(memory, state.host_rank, state.host_size);
  state.board.sign_in(state.rank);
  check_mpi(MPI_Barrier(state.host_comm), "MPI_Barrier");
}

void start_mpi(World::State& state) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  require(initialized == 0, "World: a second world with MPI in one process");
  int provided = 0;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  state.mpi = true;
  if (provided < MPI_THREAD_FUNNELED) {
    throw SystemError("MPI offers no MPI_THREAD_FUNNELED", "MPI_Init_thread", "use an MPI that was built with threads");
  }
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &state.comm), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(state.comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(state.comm, &state.rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(state.comm, &state.size), "MPI_Comm_size");
  open_board(state);
}

void start_alone(World::State& state) {
  state.own_board.resize(Board::board_bytes(1));
  Board::clear(state.own_board, 1);
  state.board = Board(state.own_board, 0, 1);
  state.board.sign_in(0);
}

/// After the clean barrier: everybody is here, so collective freeing does not wait long.
void free_all(World::State& state) {
  for (World::State::Lent& lent : state.lent) {
    if (lent.window != MPI_WIN_NULL) MPI_Win_free(&lent.window);
    if (lent.comm != MPI_COMM_NULL) MPI_Comm_free(&lent.comm);
  }
  state.board = Board();
  MPI_Win_free(&state.board_window);
  MPI_Comm_free(&state.host_comm);
  MPI_Comm_free(&state.comm);
  MPI_Finalize();
}

}  // namespace

World::World(const WorldOptions& options) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.host = host_name();
  if (options.use_mpi) {
    start_mpi(s);
  } else {
    start_alone(s);
  }
  s.everyone.resize(s.size);
  std::iota(s.everyone.begin(), s.everyone.end(), 0);
  s.hosts.assign(s.size, s.host);
  s.watch = Watch(s.board, &s.hosts);
  s.patrol = Watch(s.board, &s.hosts);
  set_timeout(options.timeout);
  s.patrol.begin("work of this rank", s.everyone);
  if (s.size > 1) or_fail([&] { s.hosts = all_gather_text(s.host, "start: host names"); });
}

/// Where nobody could catch and call fail: in the constructor and the destructor.
void World::or_fail(const std::function<void()>& step) {
  try {
    step();
  } catch (const PeerFailure&) {
    fail(1, "");
  } catch (const Error& error) {
    fail(error.exit_code(), error.what());
  }
}

World::~World() {
  State& s = *state_;
  if (!s.mpi || std::uncaught_exceptions() > s.exceptions_at_start) return;
  or_fail([&] { barrier("end of the run"); });
  s.board.own().end.store(RankEnd::kFinished, std::memory_order_release);
  free_all(s);
}

int World::rank() const {
  return state_->rank;
}
int World::size() const {
  return state_->size;
}
int World::host_rank() const {
  return state_->host_rank;
}
int World::host_size() const {
  return state_->host_size;
}
const std::string& World::host() const {
  return state_->host;
}
const std::vector<std::string>& World::hosts() const {
  return state_->hosts;
}
bool World::one_host() const {
  return state_->host_size == state_->size;
}
World::State& World::state() {
  return *state_;
}

std::string World::mpi_version() const {
  if (!state_->mpi) return "";
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  check_mpi(MPI_Get_library_version(text.data(), &length), "MPI_Get_library_version");
  const std::string version(text.data(), length);
  return version.substr(0, version.find_first_of(",\n"));
}

void World::set_timeout(std::chrono::milliseconds timeout) {
  state_->watch.set_timeout(timeout);
  state_->patrol.set_timeout(timeout);
}

std::chrono::milliseconds World::timeout() const {
  return state_->watch.timeout();
}

int64_t World::at_failure(std::function<void()> act) {
  state_->at_failure.emplace(state_->next_at_failure, std::move(act));
  return state_->next_at_failure++;
}

void World::cancel_at_failure(int64_t number) {
  state_->at_failure.erase(number);
}

void World::look() {
  if (state_->size > 1) state_->look_at_others([&] { state_->patrol.patrol(); });
}

void World::progress(const char* doing) {
  BoardEntry& own = state_->board.own();
  own.beat();
  look();
  if (doing == state_->doing) return;
  state_->doing = doing;
  own.doing.assign(doing == nullptr ? "" : doing);
}

void World::wait(const std::function<bool()>& ready, std::string_view what, std::span<const int> awaited) {
  State& s = *state_;
  const auto done = [&] {
    if (!ready()) return false;
    s.board.own().beat();
    return true;
  };
  const Clock::time_point start = Clock::now();
  do {
    if (done()) return;
  } while (Clock::now() - start < kSpin);
  for (int i = 0; i < kYields; ++i) {
    sched_yield();
    if (done()) return;
  }
  s.watch.begin(what, awaited);
  for (int64_t sleep_ns = kShortestSleep_ns;; sleep_ns = std::min(sleep_ns * 3 / 2, kLongestSleep_ns)) {
    s.look_at_others([&] { s.watch.check(); });
    const timespec pause{0, sleep_ns};
    nanosleep(&pause, nullptr);
    if (done()) return;
  }
}

}  // namespace shardscope::parallel
