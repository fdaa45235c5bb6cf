#include "tests/emulation/machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <numeric>

#include "kernels/base/error.hpp"
#include "tests/emulation/watchdog.hpp"

namespace shardscope::emulation {
namespace {

constexpr int64_t kAccessesWithoutProgress = 1 << 20;
constexpr uint64_t kLeastIdleStepNs = 1000;
constexpr uint64_t kMostIdleStepNs = 60'000'000'000;
constexpr uint64_t kStuckNs = 3600'000'000'000;  // longer than any wait that a kernel may allow itself

}  // namespace

Thread::Thread() : fibre(&Machine::run_threads, this) {}

Machine& Machine::get() {
  static auto& machine = *new Machine;  // never destroyed: fibres stay suspended
  return machine;
}

Machine::Machine() {
  restart({});
}

void Machine::restart(const Options& options) {
  require(running_ == nullptr && options.devices >= 1 && options.devices <= kMostDevices,
          "emulation: restart is for the host, with 1 to 8 devices");
  abandon_everything();
  options_ = options;
  checked_ = emulation::checked();
  memory_.reset();
  spare_blocks_.clear();
  Shadow::forget_parts();
  memory_ = std::make_unique<DeviceMemory>();
  random_.seed(options.seed);
  flags_.clear();
  counters_.clear();
  reports_.clear();
  history_.clear();
  std::fill_n(&peer_enabled[0][0], kMostDevices * kMostDevices, false);
  next_block_id_ = 1;
  now_ns_ = 1;
  stopped_ = false;
}

int64_t Machine::random_below(int64_t bound) {
  // Not a std::uniform_int_distribution: a seed means the same order on every machine.
  return seeded() ? static_cast<int64_t>(random_() % static_cast<uint64_t>(bound)) : 0;
}

BlockId Machine::new_block_ids(const GridRecord& grid) {
  const BlockId first = next_block_id_;
  history_.emplace(first, grid);
  next_block_id_ += static_cast<BlockId>(grid.blocks());
  return first;
}

// ---- who goes next --------------------------------------------------------------------------------------------------

void Machine::run(Source& source, const std::function<bool()>& done) {
  const Watchdog watchdog(options_.seconds_to_end);
  grid_event_ = true;
  idle_progress_ = progress_ - 1;
  while (!stopped_ && !done()) {
    if (grid_event_ || grids_.empty() || random_below(16) == 1) {
      grid_event_ = false;
      source.start_ready();
      if (grids_.empty()) {
        if (grid_event_) continue;  // a copy ran, and something else may start now
        return;
      }
    }
    const int64_t next = next_block();
    if (next < 0) {
      idle();
      continue;
    }
    const Block& block = *resident_[static_cast<size_t>(next)];
    running_ = pop_ready(*resident_[static_cast<size_t>(next)]);
    Fibre::switch_to(scheduler_, running_->fibre);
    if (stopped_) break;
    if (block.live == 0) {
      end_block(static_cast<size_t>(next));
    } else if (block.stuck()) {
      report_stuck_block(block);
    } else if (rotate_) {
      std::rotate(resident_.begin() + next, resident_.begin() + next + 1, resident_.end());
    }
    rotate_ = false;
  }
  if (stopped_) abandon_everything();
}

int64_t Machine::next_block() {
  // Those that may come in before anybody is stuck.
  for (size_t i = 0; i < grids_.size(); ++i) {
    Grid& grid = *grids_[i];
    if (grid.resident_blocks < grid.eager_blocks && (grid.early || random_below(2) == 1) && admit(grid)) {
      if (!seeded()) return static_cast<int64_t>(resident_.size()) - 1;
    }
  }
  int64_t chosen = -1;
  int64_t candidates = 0;
  for (size_t i = 0; i < resident_.size(); ++i) {
    if (resident_[i]->ready.empty()) continue;
    if (!seeded()) return static_cast<int64_t>(i);
    if (random_below(++candidates) == 0) chosen = static_cast<int64_t>(i);
  }
  if (chosen >= 0) return chosen;
  const auto first = static_cast<size_t>(random_below(static_cast<int64_t>(grids_.size())));
  for (size_t i = 0; i < grids_.size(); ++i) {
    if (admit(*grids_[(first + i) % grids_.size()])) return static_cast<int64_t>(resident_.size()) - 1;
  }
  return -1;
}

Thread* Machine::pop_ready(Block& block) {
  if (block.ready.empty()) return nullptr;
  if (seeded()) {
    std::swap(block.ready.front(), block.ready[static_cast<size_t>(random_below(std::ssize(block.ready)))]);
  }
  Thread* const thread = block.ready.front();
  block.ready.pop_front();
  return thread;
}

void Machine::hand_over(Thread& thread) {
  if (thread.fibre.overflowed()) {
    stop(Fault::kForeignLocal, thread, thread.place,
         [] { return fmt::format("the stack of {} bytes has overflowed", Fibre::stack_bytes()); });
  }
  Thread* next = nullptr;
  if (!grid_event_ && !(seeded() && random_below(8) == 0)) next = pop_ready(*thread.block);
  running_ = next;
  if (next == &thread) return;
  Fibre::switch_to(thread.fibre, next != nullptr ? next->fibre : scheduler_);
}

void Machine::wait(Thread& thread, State state) {
  thread.state = state;
  if (state == State::kPolling) {
    thread.block->polling.push_back(&thread);
  } else {
    note_progress();
  }
  hand_over(thread);
}

void Machine::make_ready(Thread& thread) {
  thread.state = State::kReady;
  thread.block->ready.push_back(&thread);
}

void Machine::pause(Thread& thread) {
  make_ready(thread);
  rotate_ = true;
  hand_over(thread);
}

int64_t Machine::accesses_to_pause() {
  return seeded() ? 1 + random_below(128) : kAccessesWithoutProgress;
}

void Machine::pause_at_access(Thread& thread) {
  // A loop that polls with plain loads never waits: after a while it counts as one that does.
  const int64_t accesses = thread.accesses_between_pauses;
  thread.accesses_without_progress =
      progress_ == thread.progress_seen ? thread.accesses_without_progress + accesses : 0;
  thread.progress_seen = progress_;
  thread.accesses_between_pauses = thread.accesses_to_pause = accesses_to_pause();
  if (thread.accesses_without_progress >= kAccessesWithoutProgress) {
    thread.accesses_without_progress = 0;
    wait(thread, State::kPolling);
  } else {
    pause(thread);
  }
}

void Machine::idle() {
  bool polling = false;
  for (const std::unique_ptr<Block>& block : resident_) polling |= !block->polling.empty();
  if (progress_ != idle_progress_) {
    idle_progress_ = progress_;
    idle_ns_ = 0;
    idle_step_ns_ = kLeastIdleStepNs;
  }
  now_ns_ += idle_step_ns_;
  idle_ns_ += idle_step_ns_;
  idle_step_ns_ = std::min(idle_step_ns_ * 2, kMostIdleStepNs);
  if (!polling || idle_ns_ > kStuckNs) {
    report_no_progress();
    return;
  }
  for (const std::unique_ptr<Block>& block : resident_) {
    for (Thread* thread : block->polling) make_ready(*thread);
    block->polling.clear();
  }
}

void Machine::abandon_everything() {
  // Where they stand does not matter any more; what they hold lies in Thread, Block and Grid.
  for (std::unique_ptr<Block>& block : resident_) {
    for (Thread* thread : block->threads) {
      thread->fibre.begin_anew();
      thread->state = State::kEnded;
      spare_threads_.push_back(thread);
    }
    spare_blocks_.push_back(std::move(block));
  }
  resident_.clear();
  grids_.clear();
  std::fill(std::begin(device_use_), std::end(device_use_), 0.0);
  running_ = nullptr;
}

}  // namespace shardscope::emulation
