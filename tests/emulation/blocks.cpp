// How grids come in, a block at a time, and how blocks and threads begin and end.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <numeric>

#include "tests/emulation/machine.hpp"

namespace shardscope::emulation {
namespace {

// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", of shared memory.
constexpr int64_t kSharedBytesReservedPerBlock = 1 << 10;

constexpr int64_t kEagerBlocks = 4;

}  // namespace

uint3 coordinates(int64_t number, const dim3& size) {
  const auto x = static_cast<int64_t>(size.x);
  const auto y = static_cast<int64_t>(size.y);
  return {static_cast<unsigned>(number % x), static_cast<unsigned>(number / x % y),
          static_cast<unsigned>(number / (x * y))};
}

int64_t Machine::resident_blocks_per_multiprocessor(int device, int64_t threads, int64_t shared_bytes) const {
  const GpuModel& model = *gpu(device).model;
  const int64_t by_threads = model.threads_per_multiprocessor / ((threads + 31) / 32 * 32);
  const int64_t by_shared = model.shared_bytes_per_multiprocessor / (shared_bytes + kSharedBytesReservedPerBlock);
  return std::min({by_threads, by_shared, static_cast<int64_t>(model.blocks_per_multiprocessor)});
}

void Machine::start(const std::shared_ptr<Grid>& grid) {
  grid->first_block = new_block_ids({grid->kernel->kernel, grid->size, grid->block_size, {}});
  const int64_t threads = static_cast<int64_t>(grid->block_size.x) * grid->block_size.y * grid->block_size.z;
  grid->most_resident =
      multiprocessors(grid->device) *
      std::max<int64_t>(1, resident_blocks_per_multiprocessor(grid->device, threads, grid->shared_bytes));
  if (seeded() && grid->blocks() <= (1 << 20)) {
    grid->order.resize(static_cast<size_t>(grid->blocks()));
    std::iota(grid->order.begin(), grid->order.end(), 0u);
    for (size_t i = grid->order.size(); i > 1; --i) {
      std::swap(grid->order[i - 1], grid->order[static_cast<size_t>(random_below(static_cast<int64_t>(i)))]);
    }
  }
  // A dependent launch is let in at once, so that it really runs beside its predecessor.
  grid->eager_blocks = grid->early ? kEagerBlocks : seeded() ? 1 + random_below(kEagerBlocks) : 0;
  grid->counts = &counters_.of(grid->kernel->kernel);
  ++grid->counts->launches;
  grids_.push_back(grid);
}

bool Machine::admit(Grid& grid) {
  const double share = 1.0 / static_cast<double>(grid.most_resident);
  if (grid.started_blocks == grid.blocks() || device_use_[grid.device] + share > 1.0 + 1e-9) return false;
  device_use_[grid.device] += share;
  std::unique_ptr<Block> block;
  if (spare_blocks_.empty()) {
    block = std::make_unique<Block>();
    block->shared = std::make_unique<SharedMemory>();
  } else {
    block = std::move(spare_blocks_.back());
    spare_blocks_.pop_back();
  }
  const int64_t turn = grid.started_blocks++;
  const int64_t number = grid.order.empty() ? turn : grid.order[static_cast<size_t>(turn)];
  ++grid.resident_blocks;
  block->begin(grid, number);
  for (int i = 0; i < block->live; ++i) {
    Thread& thread = spare_thread();
    thread.begin(*block, i, coordinates(i, grid.block_size), grid.base);
    thread.accesses_to_pause = thread.accesses_between_pauses = accesses_to_pause();
    block->threads.push_back(&thread);
    block->ready.push_back(&thread);
  }
  resident_.push_back(std::move(block));
  note_progress();
  return true;
}

bool Block::stuck() const {
  return ready.empty() && polling.empty() && std::none_of(threads.begin(), threads.end(), [](const Thread* thread) {
           return thread->state == State::kGridWait || thread->state == State::kReady;
         });
}

void Block::begin(Grid& its_grid, int64_t its_number) {
  grid = &its_grid;
  id = its_grid.first_block + static_cast<BlockId>(its_number);
  index = coordinates(its_number, its_grid.size);
  live = static_cast<int>(its_grid.block_size.x * its_grid.block_size.y * its_grid.block_size.z);
  threads.clear();
  ready.clear();
  polling.clear();
  warps.assign(static_cast<size_t>((live + 31) / 32), Warp{});
  for (size_t w = 0; w < warps.size(); ++w) {
    const int lanes = std::min(32, live - static_cast<int>(w) * 32);
    warps[w].lanes = lanes == 32 ? 0xFFFFFFFFu : (1u << lanes) - 1;
    for (size_t lane = 0; lane < 32; ++lane) {
      warps[w].clocks[lane].fill(0);
      warps[w].clocks[lane][lane] = 1;
    }
  }
  at_barrier = 0;
  barrier_sum = 0;
  epoch = 1;
  triggered = false;
  flags.clear();
  shared->begin_block(its_grid.shared_bytes);
}

void Thread::begin(Block& its_block, int its_index, uint3 its_id, const KnowledgePtr& base) {
  block = &its_block;
  index = static_cast<uint16_t>(its_index);
  id = its_id;
  state = State::kReady;
  place = nullptr;
  know(base);
  observed[0] = observed[1] = published[0] = published[1] = nullptr;
  accesses_without_progress = 0;
  copies.clear();
  copy_groups.clear();
}

Thread& Machine::spare_thread() {
  if (spare_threads_.empty()) {
    spare_threads_.push_back(threads_.emplace_back(std::make_unique<Thread>()).get());
  }
  Thread& thread = *spare_threads_.back();
  spare_threads_.pop_back();
  return thread;
}

void Machine::trigger(Block& block) {
  if (block.triggered) return;
  block.triggered = true;
  if (++block.grid->triggered_blocks == block.grid->blocks()) grid_event_ = true;
}

void Machine::end_block(size_t resident_index) {
  std::unique_ptr<Block> block = std::move(resident_[resident_index]);
  resident_.erase(resident_.begin() + static_cast<std::ptrdiff_t>(resident_index));
  Grid& grid = *block->grid;
  trigger(*block);
  if (options_.count_requests) block->requests.flush(*grid.counts);
  device_use_[grid.device] -= 1.0 / static_cast<double>(grid.most_resident);
  --grid.resident_blocks;
  spare_threads_.insert(spare_threads_.end(), block->threads.rbegin(), block->threads.rend());
  spare_blocks_.push_back(std::move(block));
  if (++grid.done_blocks == grid.blocks()) end_grid(grid);
}

void Machine::end_grid(Grid& grid) {
  grid_event_ = true;
  auto complete = std::make_shared<Knowledge>();
  complete->add_complete(grid.first_block, grid.first_block + static_cast<BlockId>(grid.blocks()));
  grid.done_knowledge = joined(joined(grid.done_knowledge, grid.base), complete);
  for (const std::shared_ptr<Grid>& other : grids_) {
    if (other->predecessor != &grid) continue;
    other->predecessor = nullptr;
    other->predecessor_done = grid.done_knowledge;
    for (const std::unique_ptr<Block>& block : resident_) {
      if (block->grid != other.get()) continue;
      for (Thread* thread : block->threads) {
        if (thread->state == State::kGridWait) make_ready(*thread);
      }
    }
  }
  std::erase_if(grids_, [&](const std::shared_ptr<Grid>& one) { return one.get() == &grid; });
}

void Machine::run_threads(void* thread) {
  for (;;) Machine::get().run_thread(*static_cast<Thread*>(thread));
}

void Machine::run_thread(Thread& thread) {
  const Grid& grid = *thread.block->grid;
  grid.kernel->call(grid.kernel->kernel, grid.argument_pointers.data());
  end_thread(thread);
  hand_over(thread);
}

void Machine::end_thread(Thread& thread) {
  Block& block = *thread.block;
  if (!thread.copies.empty()) {
    stop(Fault::kPendingCopy, thread, thread.copies.front().place, [&] {
      return fmt::format("a thread ended with {} copies by cp.async that nobody has waited for", thread.copies.size());
    });
  }
  Warp& warp = block.warps[thread.index / 32];
  const uint32_t lane = 1u << (thread.index % 32);
  warp.ended |= lane;
  for (const WarpOperation& operation : warp.operations) {
    if ((operation.mask & lane) == 0) continue;
    Thread& waiting = *block.threads[thread.index / 32 * 32 + static_cast<size_t>(std::countr_zero(operation.arrived))];
    stop(Fault::kDivergentWarp, waiting, waiting.place, [&] {
      return fmt::format("{} with mask 0x{:08x} waits for lane {}, which has ended", name(operation.kind),
                         operation.mask, thread.index % 32);
    });
  }
  if (checked_) block.grid->done_knowledge = joined(block.grid->done_knowledge, thread.known());
  thread.state = State::kEnded;
  --block.live;
  if (block.at_barrier > 0 && block.at_barrier == block.live) {
    for (const Thread* waiting : block.threads) {
      if (waiting->state == State::kBarrier) report_ended_before_barrier(*waiting, thread);
    }
  }
  note_progress();
}

}  // namespace shardscope::emulation
