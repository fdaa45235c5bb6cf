// How a fault is told, and how it ends all that runs.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tests/emulation/machine.hpp"
#include "tests/emulation/symbols.hpp"

namespace shardscope::emulation {
namespace {

std::string describe_thread(uint16_t thread, const dim3& block_size, int64_t block, const dim3& grid_size) {
  const uint3 t = coordinates(thread, block_size);
  const uint3 b = coordinates(block, grid_size);
  return fmt::format("thread ({},{},{}) of block ({},{},{})", t.x, t.y, t.z, b.x, b.y, b.z);
}

}  // namespace

std::string Thread::description() const {
  return describe_thread(index, block->grid->block_size, block->number(), block->grid->size);
}

std::string Machine::describe(const Access& access) const {
  const auto record = std::prev(history_.upper_bound(access.block));
  const GridRecord& grid = record->second;
  if (grid.kernel == nullptr) return grid.operation;
  return fmt::format("{} of kernel {}",
                     describe_thread(access.thread, grid.block_size, access.block - record->first, grid.size),
                     kernel_name(grid.kernel));
}

void Machine::report_ended_before_barrier(const Thread& waiting, const Thread& ended) {
  stop(Fault::kDivergentBarrier, waiting, waiting.place,
       [&] { return fmt::format("a barrier waits for {}, which has ended", ended.description()); });
}

void Machine::leave() {
  Thread* const here = running_;
  running_ = nullptr;
  Fibre::switch_to(here->fibre, *scheduler_);
  __builtin_unreachable();
}

void Machine::report(Fault fault, const Thread& thread, const std::string& what, const void* place) {
  const std::string kernel = kernel_name(thread.block->grid->kernel->kernel);
  record(fault, kernel,
         fmt::format("{}: {}; kernel {}, {}, {}", name(fault), what, kernel, thread.description(), place_of(place)));
}

void Machine::record(Fault fault, const std::string& kernel, const std::string& message, bool stops) {
  if (stops) {
    stopped_ = true;
    stopped_by_ = fault;
  }
  reports_.push_back({fault, kernel, message});
}

/// The scheduler's: this block cannot go on, and nobody else can help it.
void Machine::report_stuck_block(const Block& block) {
  const auto in = [&](State state) {
    return std::find_if(block.threads.begin(), block.threads.end(),
                        [state](const Thread* thread) { return thread->state == state; });
  };
  if (const auto waiting = in(State::kWarp); waiting != block.threads.end()) {
    report(Fault::kDivergentWarp, **waiting, missing_lanes(**waiting), (*waiting)->place);
    return;
  }
  // All stand at barriers, and not at the same one: the barrier itself has reported that.
  const Thread& waiting = **in(State::kBarrier);
  report(Fault::kDivergentBarrier, waiting, "a barrier that not all threads of the block reach", waiting.place);
}

/// The scheduler's: whoever is not done polls, and nothing has changed for long.
void Machine::report_no_progress(const Source& source) {
  const Thread* polling = nullptr;
  for (const std::unique_ptr<Block>& block : resident_) {
    if (polling == nullptr && !block->polling.empty()) polling = block->polling.front();
  }
  if (polling == nullptr && source.waits()) {
    record(Fault::kNoProgress, "", fmt::format("no progress: {}", source.waits_for()));
    return;
  }
  if (polling == nullptr) {
    record(Fault::kNoProgress, "", "no progress: no block of a grid fits on the device");
    return;
  }
  const Grid& grid = *polling->block->grid;
  const int64_t outside = grid.blocks() - grid.started_blocks;
  std::string what = "every thread waits and nothing changes";
  if (outside > 0) {
    what += fmt::format(
        "; {} blocks of the grid have not begun: the device "
        "holds {} of its {} at once",
        outside, grid.resident_blocks, grid.blocks());
  }
  if (source.waits()) what += "; " + source.waits_for();
  report(Fault::kNoProgress, *polling, what, polling->place);
}

}  // namespace shardscope::emulation
