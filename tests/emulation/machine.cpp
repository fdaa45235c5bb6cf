#include "tests/emulation/machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <numeric>

#include "kernels/base/error.hpp"
#include "tests/emulation/fakes/environment.hpp"
#include "tests/emulation/watchdog.hpp"

namespace shardscope::emulation {
namespace {

constexpr int64_t kAccessesWithoutProgress = 1 << 20;
constexpr uint64_t kLeastIdleStepNs = 1000;
constexpr uint64_t kMostIdleStepNs = 60'000'000'000;
constexpr uint64_t kPollStepNs = 1'000'000;      // for each time that a host which polls finds everybody waiting
constexpr uint64_t kStuckNs = 3600'000'000'000;  // longer than any wait that a kernel may allow itself

uint64_t real_ns() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

}  // namespace

thread_local Thread* Machine::running_ = nullptr;

Thread::Thread() : fibre(&Machine::run_threads, this) {}

Machine& Machine::get() {
  static auto& machine = *new Machine;  // never destroyed: fibres stay suspended
  return machine;
}

Machine::Machine() {
  restart(options_from_environment());
}

void Machine::restart(const Options& options) {
  require(running_ == nullptr, "emulation: restart is for the host");
  explain_faults();  // each time: test frameworks take the signal's handler away
  abandon_everything();
  options_ = options;
  if (!options_.table) options_.table = make_table(options_.model, options_.devices);
  const auto gpus = std::ssize(options_.table->gpus);
  require(gpus >= 1 && gpus <= kMostDevices, "emulation: a machine has 1 to 8 devices");
  visible_ = visible_devices(*options_.table, std::getenv("CUDA_VISIBLE_DEVICES"), std::getenv("CUDA_DEVICE_ORDER"));
  checked_ = emulation::checked();
  shared_with_others_ = false;
  memory_.reset();
  seen_as_ = -1;
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
  began_ns_ = real_ns();
  idle_progress_ = progress_ - 1;
  grid_event_ = false;
  rotate_ = false;
  stopped_ = false;
}

PeerAccess Machine::peer_access(int device, int peer_gpu) const {
  const auto who = static_cast<size_t>(visible_[static_cast<size_t>(device)]);
  return table().peers[who][static_cast<size_t>(peer_gpu)];
}

bool Machine::loses_writes(int device) const {
  for (const int peer : visible_) {
    if (peer_access(device, peer) == PeerAccess::kLosesWrites) return true;
  }
  return false;
}

int64_t Machine::memory_bytes(int device) const {
  return options_.device_memory_bytes > 0 ? options_.device_memory_bytes : gpu(device).model->memory_bytes;
}

int64_t Machine::free_bytes(int device) const {
  int64_t free = memory_bytes(device) - memory_->used_bytes(device);
  for (const GpuProcess& process : gpu(device).processes) free -= static_cast<int64_t>(process.used_mib) << 20;
  return std::max<int64_t>(free, 0);
}

int Machine::multiprocessors(int device) const {
  return options_.multiprocessors > 0 ? options_.multiprocessors : gpu(device).model->multiprocessors;
}

uint64_t Machine::tick_ns() {
  now_ns_ = real_time() ? std::max(now_ns_ + 1, real_ns() - began_ns_) : now_ns_ + 1;
  return now_ns_;
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

Step Machine::step(Source& source, bool leap) {
  if (stopped_) return Step::kNothing;
  if (grid_event_ || grids_.empty() || random_below(16) == 1) {
    grid_event_ = false;
    const bool started = source.start_ready();
    if (stopped_) return Step::kNothing;
    if (started) return Step::kRan;
    if (grids_.empty()) return source.waits() ? idle(source, leap) : Step::kNothing;
  }
  const int64_t next = next_block();
  if (next < 0) {
    if (source.start_ready()) return Step::kRan;
    return stopped_ ? Step::kNothing : idle(source, leap);
  }
  const Block& block = *resident_[static_cast<size_t>(next)];
  see_as(block.grid->device);
  running_ = pop_ready(*resident_[static_cast<size_t>(next)]);
  static thread_local Fibre scheduler;
  scheduler_ = &scheduler;
  Fibre::switch_to(scheduler, running_->fibre);
  if (!stopped_) {
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
  return Step::kRan;
}

void Machine::see_as(int device) {
  if (device >= 0 && !loses_writes(device)) device = -1;
  if (device == seen_as_) return;
  if (seen_as_ >= 0) lose_writes(seen_as_, false);
  if (device >= 0) lose_writes(device, true);
  seen_as_ = device;
}

void Machine::lose_writes(int device, bool losing) {
  for (int peer = 0; peer < devices(); ++peer) {
    if (peer_access(device, visible_[static_cast<size_t>(peer)]) != PeerAccess::kLosesWrites) continue;
    memory_->lose_writes(peer, losing);
  }
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
  Fibre::switch_to(thread.fibre, next != nullptr ? next->fibre : *scheduler_);
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

Step Machine::idle(const Source& source, bool leap) {
  bool polling = false;
  for (const std::unique_ptr<Block>& block : resident_) polling |= !block->polling.empty();
  if (progress_ != idle_progress_) {
    idle_progress_ = progress_;
    idle_ns_ = 0;
    idle_step_ns_ = kLeastIdleStepNs;
    progress_seen_ns_ = real_ns();
  }
  const bool real = real_time() || source.waits();
  bool stuck = false;
  if (real || !leap) {
    constexpr uint64_t kSecond = 1'000'000'000;
    stuck = real_ns() - progress_seen_ns_ > static_cast<uint64_t>(options_.seconds_to_end) * kSecond;
  }
  if (!real) {
    const uint64_t step_ns = leap ? idle_step_ns_ : kPollStepNs;
    now_ns_ += step_ns;
    idle_ns_ += step_ns;
    if (leap) idle_step_ns_ = std::min(idle_step_ns_ * 2, kMostIdleStepNs);
    stuck |= leap && (!polling || idle_ns_ > kStuckNs);
  }
  if (stuck) {
    give_up(source);
    return Step::kNothing;
  }
  for (const std::unique_ptr<Block>& block : resident_) {
    for (Thread* thread : block->polling) make_ready(*thread);
    block->polling.clear();
  }
  return Step::kIdle;
}

void Machine::give_up(const Source& source) {
  report_no_progress(source);
  abandon_everything();
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
