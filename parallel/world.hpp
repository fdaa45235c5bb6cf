// The MPI session of one process: who we are among the ranks, and the board on which ranks show that they live and say
// why they failed. The only folder that sees MPI. Started alone (no launcher), a world of one rank without MPI.
// Nothing here waits without an end: every wait watches the board and names who is missing.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shardscope::parallel {

struct WorldOptions {
  bool use_mpi = false;                       // a launcher started us
  std::chrono::milliseconds timeout{60'000};  // longest wait without progress of the awaited rank
};

/// Thrown in a rank whose wait ended because another rank failed: that other rank's error is the one to print.
class PeerFailure {};

class World {
 public:
  explicit World(const WorldOptions& options);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();  // finalises MPI after a clean end

  int rank() const;
  int size() const;
  int host_rank() const;  // among the ranks that share this host's memory, from MPI's shared-memory split
  int host_size() const;
  const std::string& host() const;
  /// Host name of every rank.
  const std::vector<std::string>& hosts() const;
  bool one_host() const;
  std::string mpi_version() const;  // empty without MPI

  void set_timeout(std::chrono::milliseconds timeout);
  std::chrono::milliseconds timeout() const;

  /// Says on the board that this rank lives and what it is doing; cheap enough for once a layer. `doing` must have
  /// static lifetime. Now and then it also looks at the other ranks of this host, so that one that stopped is found
  /// while nobody waits for it: throws as `wait` does.
  void progress(const char* doing);

  /// Now and then looks at the other ranks of this host, as progress does, and throws as it does; says nothing of this
  /// rank. For whoever polls for a while before it waits.
  void look();

  /// Ends when `ready` returns true. Polls briefly, then sleeps between polls (nanosleep), so that an idle rank takes
  /// no core. Throws PeerFailure when a rank has failed, SystemError naming rank, host and what it was doing when the
  /// ranks in `awaited` made no progress for the timeout or one of their processes is gone.
  void wait(const std::function<bool()>& ready, std::string_view what, std::span<const int> awaited);

  /// `act` is called when `wait` or `progress` is about to throw because of another rank: for what must not wait until
  /// the stack has been unwound. Until cancel_at_failure with the number that this returns. act: throws nothing, asks
  /// nothing of the world.
  int64_t at_failure(std::function<void()> act);
  void cancel_at_failure(int64_t number);

  // Collectives over all ranks, built on non-blocking MPI and `wait`. For control, not for the decode loop.
  void barrier(std::string_view what);
  void broadcast(std::span<std::byte> data, int root, std::string_view what);
  std::string broadcast_text(const std::string& text, int root, std::string_view what);
  /// Every rank's doubles, rank by rank [size * values.size()], on all ranks.
  std::vector<double> all_gather(std::span<const double> values, std::string_view what);
  /// Every rank's text on all ranks.
  std::vector<std::string> all_gather_text(const std::string& text, std::string_view what);

  /// Posts this rank's failure on the board, waits a little for the others to post theirs, and prints the line of the
  /// lowest failing rank (by exactly one process, "shardscope: error: …, rank R on HOST" where size() > 1). Then ends
  /// the whole job with `exit_code`: never returns where other ranks exist. message empty: this rank failed only
  /// because of a peer (PeerFailure).
  [[noreturn]] void fail(int exit_code, const std::string& message);

  /// For a rank that is about to end its process itself: tells the others on this host, which then end without a line
  /// of their own, as they do in `fail`. Callable on any thread, returns at once. False: another rank has failed
  /// already and its line is, or will be, the one to print.
  bool announce_end(int exit_code, const std::string& message);

  struct State;
  State& state();

 private:
  void or_fail(const std::function<void()>& step);

  std::unique_ptr<State> state_;
};

}  // namespace shardscope::parallel
