// What a waiting rank sees on its host's board: peers that failed, died, or neither make progress nor wait. Names the
// culprit, not another waiter. Knows no MPI. Private to parallel/.
//
// Silence is time that passed while this rank was itself looking: a gap between two looks counts at most kLongestGap,
// so that a job that was suspended as a whole finds nobody guilty when it goes on.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/board.hpp"

namespace shardscope::parallel {

class Watch {
 public:
  using Clock = std::chrono::steady_clock;

  Watch() = default;
  /// hosts: host name of every rank of the world. One wait at a time uses a watch; begin and check do not allocate.
  Watch(Board board, const std::vector<std::string>* hosts);

  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  std::chrono::milliseconds timeout() const { return timeout_; }

  /// A wait starts for the world ranks `awaited`, whose storage must outlive the wait, as must `what`.
  void begin(std::string_view what, std::span<const int> awaited);

  /// To be called again and again while waiting, at any pace. Throws PeerFailure, or SystemError that names the
  /// culprits.
  void check();

  /// To be called again and again while this rank works: reads the board now and then, and throws as check does when
  /// another rank has failed, died, or neither progressed nor waited for the timeout. After `begin` for all ranks.
  void patrol();

 private:
  struct Seen {
    uint64_t heartbeats = 0;
    uint64_t polls = 0;
    Clock::duration without_heartbeat{};
    Clock::duration without_poll{};
  };

  void observe(Clock::duration passed);
  bool awaits(int rank) const;
  bool unresponsive(size_t index) const;  // neither progress nor a wait
  bool host_is_silent() const;            // no progress of any other rank here
  void throw_if_dead() const;
  void throw_if_silent() const;
  [[noreturn]] void throw_culprits(const std::vector<const BoardEntry*>& culprits, std::string_view deed) const;
  [[noreturn]] void throw_deadlock() const;

  Board board_;
  const std::vector<std::string>* hosts_ = nullptr;
  std::chrono::milliseconds timeout_{60'000};
  std::vector<Seen> seen_;  // by host rank
  std::string_view what_;
  std::span<const int> awaited_;
  Clock::time_point last_look_;
  Clock::duration waited_{};
  Clock::duration since_process_check_{};
};

}  // namespace shardscope::parallel
