// Barriers and the operations of warps. The last thread to arrive does the work for all and makes the others ready.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "tests/emulation/machine.hpp"
#include "tests/emulation/symbols.hpp"

namespace shardscope::emulation {

std::string_view name(WarpOperation::Kind kind) {
  using Kind = WarpOperation::Kind;
  switch (kind) {
    case Kind::kSync:
      return "__syncwarp";
    case Kind::kShuffle:
      return "a shuffle";
    case Kind::kVote:
      return "a vote";
    case Kind::kReduce:
      return "a warp reduction";
    case Kind::kMultiply:
      return "a matrix multiply (mma)";
  }
  return "";
}

namespace {

using Kind = WarpOperation::Kind;

constexpr uint32_t kAllLanes = 0xFFFFFFFFu;

uint32_t lane_bit(const Thread& thread) {
  return 1u << (thread.index % 32);
}

Thread& lane_of(Block& block, const Thread& thread, int lane) {
  return *block.threads[static_cast<size_t>(thread.index / 32 * 32 + lane)];
}

template <class Work>
void for_each_lane(uint32_t mask, const Work& work) {
  for (; mask != 0; mask &= mask - 1) work(std::countr_zero(mask));
}

/// __syncwarp: what one of the lanes did or knew before, all of them know after.
void order_lanes(Block& block, const Thread& thread, uint32_t mask) {
  Warp& warp = block.warp_of(thread);
  LaneClocks all{};
  KnowledgePtr known = thread.known();
  for_each_lane(mask, [&](int lane) {
    for (size_t i = 0; i < 32; ++i) all[i] = std::max(all[i], warp.clocks[lane][i]);
    known = joined(known, lane_of(block, thread, lane).known());
  });
  for_each_lane(mask, [&](int lane) {
    warp.clocks[lane] = all;
    ++warp.clocks[lane][static_cast<size_t>(lane)];
    if (Thread& other = lane_of(block, thread, lane); other.known() != known) other.know(known);
  });
}

/// The lane that a shuffle reads from, as the PTX ISA says (shfl.sync); the own lane where it would leave its segment.
int source_lane(call::Shuffle kind, int lane, int argument, int width) {
  const int segment = lane / width * width;
  int source = lane;
  argument &= 31;
  switch (kind) {
    case call::Shuffle::kIndex:
      return segment + (argument & (width - 1));
    case call::Shuffle::kUp:
      source = lane - argument;
      break;
    case call::Shuffle::kDown:
      source = lane + argument;
      break;
    case call::Shuffle::kXor:
      source = lane ^ argument;
      break;
  }
  // xor may reach into an earlier segment of the warp, never into a later one.
  if (kind == call::Shuffle::kXor) return source < segment + width ? source : lane;
  return source >= segment && source < segment + width ? source : lane;
}

float element(bool bf16, uint32_t word, int half) {
  const auto bits = static_cast<unsigned short>(word >> (16 * half));
  return bf16 ? __bfloat162float(std::bit_cast<__nv_bfloat16>(bits)) : __half2float(std::bit_cast<__half>(bits));
}

/// d += a b over the fragments of 32 lanes (PTX ISA, mma.m16n8k16): lane 4 r + c holds of a the rows r and r + 8 in
/// columns 2c, 2c+1, 2c+8, 2c+9; of b the rows 2c, 2c+1, 2c+8, 2c+9 in column r; of d rows r and r + 8 in columns 2c,
/// 2c+1.
void multiply(Block& block, const Thread& thread, bool bf16) {
  float a[16][16];
  float b[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const Operand& operand = lane_of(block, thread, lane).operand;
    const int row = lane / 4;
    const int column = lane % 4 * 2;
    for (int half = 0; half < 2; ++half) {
      a[row][column + half] = element(bf16, operand.a[0], half);
      a[row + 8][column + half] = element(bf16, operand.a[1], half);
      a[row][column + 8 + half] = element(bf16, operand.a[2], half);
      a[row + 8][column + 8 + half] = element(bf16, operand.a[3], half);
      b[column + half][row] = element(bf16, operand.b[0], half);
      b[column + 8 + half][row] = element(bf16, operand.b[1], half);
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    const Operand& operand = lane_of(block, thread, lane).operand;
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8;
      const int column = lane % 4 * 2 + i % 2;
      float sum = operand.d[i];
      for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
      operand.d[i] = sum;
    }
  }
}

/// The larger one, as the device has it: a number before NaN, and +0 before -0 (PTX ISA, max.f32).
float larger(float a, float b) {
  if (a == b) return std::signbit(a) ? b : a;
  return std::fmax(a, b);
}

/// As the butterfly of warp_sum adds: all lanes get the same bits, since each step's two operands only change sides.
float reduced(Block& block, const Thread& thread, call::Reduction kind) {
  float values[32];
  for (int lane = 0; lane < 32; ++lane) {
    values[lane] = std::bit_cast<float>(static_cast<uint32_t>(lane_of(block, thread, lane).operand.bits));
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    for (int lane = 0; lane < offset; ++lane) {
      values[lane] = kind == call::Reduction::kSum ? values[lane] + values[lane + offset]
                                                   : larger(values[lane], values[lane + offset]);
    }
  }
  return values[0];
}

void complete(Block& block, Thread& last, const WarpOperation& operation) {
  switch (operation.kind) {
    case Kind::kSync:
      if (Machine::get().checked()) order_lanes(block, last, operation.mask);
      break;
    case Kind::kShuffle:
      for_each_lane(operation.mask, [&](int lane) {
        Thread& thread = lane_of(block, last, lane);
        const int source =
            source_lane(static_cast<call::Shuffle>(operation.variant), lane, thread.operand.lane, thread.operand.width);
        if ((operation.mask & (1u << source)) == 0) {
          Machine::get().stop(Fault::kDivergentWarp, thread, thread.place, [&] {
            return fmt::format("lane {} shuffles from lane {}, which is not in mask 0x{:08x}", lane, source,
                               operation.mask);
          });
        }
        thread.result = lane_of(block, last, source).operand.bits;
      });
      break;
    case Kind::kVote: {
      uint32_t ballot = 0;
      for_each_lane(operation.mask, [&](int lane) {
        if (lane_of(block, last, lane).operand.bits != 0) ballot |= 1u << lane;
      });
      const auto kind = static_cast<call::Vote>(operation.variant);
      const uint32_t result = kind == call::Vote::kBallot ? ballot
                              : kind == call::Vote::kAny  ? (ballot != 0 ? 1u : 0u)
                                                          : (ballot == operation.mask ? 1u : 0u);
      for_each_lane(operation.mask, [&](int lane) { lane_of(block, last, lane).result = result; });
      break;
    }
    case Kind::kReduce: {
      const float result = reduced(block, last, static_cast<call::Reduction>(operation.variant));
      for_each_lane(operation.mask,
                    [&](int lane) { lane_of(block, last, lane).result = std::bit_cast<uint32_t>(result); });
      break;
    }
    case Kind::kMultiply:
      multiply(block, last, operation.variant != 0);
      break;
  }
}

/// What one lane does at a warp operation; its operand is set. Returns when all lanes of the mask have arrived.
void arrive(Thread& thread, const WarpOperation& wanted) {
  Machine& machine = Machine::get();
  Block& block = *thread.block;
  Warp& warp = block.warp_of(thread);
  const uint32_t bit = lane_bit(thread);
  const auto fault = [&](const auto& text) { machine.stop(Fault::kDivergentWarp, thread, thread.place, text); };
  if ((wanted.mask & bit) == 0) {
    fault([&] {
      return fmt::format("{} with mask 0x{:08x}, in which the calling lane {} is missing", name(wanted.kind),
                         wanted.mask, thread.index % 32);
    });
  }
  if ((wanted.mask & ~warp.lanes) != 0) {
    fault([&] {
      return fmt::format("{} with mask 0x{:08x} names lanes that the warp does not have (it has 0x{:08x})",
                         name(wanted.kind), wanted.mask, warp.lanes);
    });
  }
  if ((wanted.mask & warp.ended) != 0) {
    fault([&] {
      return fmt::format("{} with mask 0x{:08x} names lane {}, which has ended", name(wanted.kind), wanted.mask,
                         std::countr_zero(wanted.mask & warp.ended));
    });
  }
  for (size_t i = 0; i < warp.operations.size(); ++i) {
    WarpOperation& waiting = warp.operations[i];
    if ((waiting.mask & wanted.mask) == 0) continue;
    if (waiting.mask != wanted.mask || waiting.kind != wanted.kind || waiting.variant != wanted.variant ||
        waiting.site != wanted.site) {
      const Thread& other = lane_of(block, thread, std::countr_zero(waiting.arrived));
      fault([&] {
        return fmt::format("{} with mask 0x{:08x}, while lane {} of the warp waits in {} with mask 0x{:08x} at {}",
                           name(wanted.kind), wanted.mask, other.index % 32, name(waiting.kind), waiting.mask,
                           place_of(other.place));
      });
    }
    waiting.arrived |= bit;
    if (waiting.arrived != waiting.mask) {
      machine.wait(thread, State::kWarp);
      return;
    }
    const WarpOperation operation = waiting;
    warp.operations.erase(warp.operations.begin() + static_cast<std::ptrdiff_t>(i));
    complete(block, thread, operation);
    for_each_lane(operation.mask & ~bit, [&](int lane) { machine.make_ready(lane_of(block, thread, lane)); });
    machine.note_progress();
    return;
  }
  if (wanted.mask == bit) {
    complete(block, thread, wanted);
    return;
  }
  warp.operations.push_back(wanted);
  warp.operations.back().arrived = bit;
  machine.wait(thread, State::kWarp);
}

}  // namespace

std::string missing_lanes(const Thread& thread) {
  Block& block = *thread.block;
  for (const WarpOperation& operation : block.warp_of(thread).operations) {
    if ((operation.arrived & lane_bit(thread)) == 0) continue;
    const int lane = std::countr_zero(operation.mask & ~operation.arrived);
    const Thread& missing = lane_of(block, thread, lane);
    return fmt::format("{} with mask 0x{:08x} waits for lane {}, which waits at {}", name(operation.kind),
                       operation.mask, lane, place_of(missing.place));
  }
  return "a warp operation waits for lanes";
}

namespace call {

#define SHARDSCOPE_CALLER(thread)             \
  Thread& thread = *Machine::get().running(); \
  thread.place = __builtin_return_address(0); \
  thread.site = site

int barrier(BarrierVote vote, int predicate, Site site) noexcept {
  SHARDSCOPE_CALLER(thread);
  Machine& machine = Machine::get();
  Block& block = *thread.block;
  thread.operand.bits = static_cast<uint64_t>(vote);
  block.barrier_sum += predicate != 0 ? 1 : 0;
  if (++block.at_barrier < block.live) {
    machine.wait(thread, State::kBarrier);
    return static_cast<int>(thread.result);
  }
  for (const Thread* other : block.threads) {
    if (other->state == State::kEnded) machine.report_ended_before_barrier(thread, *other);
    if (other->site != site || other->operand.bits != thread.operand.bits) {
      machine.stop(Fault::kDivergentBarrier, thread, thread.place, [&] {
        return fmt::format("a barrier, while {} stands at another: {}", other->description(), place_of(other->place));
      });
    }
  }
  const int sum = block.barrier_sum;
  const int result = vote == BarrierVote::kCount ? sum
                     : vote == BarrierVote::kOr  ? (sum > 0 ? 1 : 0)
                                                 : (sum == block.live ? 1 : 0);
  KnowledgePtr known = thread.known();
  if (machine.checked()) {
    for (const Thread* other : block.threads) known = joined(known, other->known());
  }
  for (Thread* other : block.threads) {
    if (other->known() != known) other->know(known);
    other->result = static_cast<uint64_t>(result);
    if (other != &thread) machine.make_ready(*other);
  }
  ++block.epoch;
  block.at_barrier = 0;
  block.barrier_sum = 0;
  machine.note_progress();
  return result;
}

void sync_warp(uint32_t mask, Site site) noexcept {
  SHARDSCOPE_CALLER(thread);
  arrive(thread, {Kind::kSync, 0, mask, 0, site});
}

uint64_t shuffle(Shuffle kind, uint32_t mask, uint64_t bits, int lane, int width, Site site) noexcept {
  SHARDSCOPE_CALLER(thread);
  if (width < 1 || width > 32 || !std::has_single_bit(static_cast<unsigned>(width))) {
    Machine::get().stop(Fault::kDivergentWarp, thread, thread.place,
                        [&] { return fmt::format("a shuffle of width {}, which is no power of two up to 32", width); });
  }
  thread.operand.bits = bits;
  thread.operand.lane = lane;
  thread.operand.width = width;
  arrive(thread, {Kind::kShuffle, static_cast<uint8_t>(kind), mask, 0, site});
  return thread.result;
}

uint32_t vote(Vote kind, uint32_t mask, bool predicate, Site site) noexcept {
  SHARDSCOPE_CALLER(thread);
  thread.operand.bits = predicate ? 1 : 0;
  arrive(thread, {Kind::kVote, static_cast<uint8_t>(kind), mask, 0, site});
  return static_cast<uint32_t>(thread.result);
}

float reduce(Reduction kind, float value, Site site) noexcept {
  SHARDSCOPE_CALLER(thread);
  thread.operand.bits = std::bit_cast<uint32_t>(value);
  arrive(thread, {Kind::kReduce, static_cast<uint8_t>(kind), kAllLanes, 0, site});
  return std::bit_cast<float>(static_cast<uint32_t>(thread.result));
}

void matrix_multiply(bool bf16, float* d, const uint32_t* a, const uint32_t* b, Site site) noexcept {
  SHARDSCOPE_CALLER(thread);
  thread.operand.d = d;
  thread.operand.a = a;
  thread.operand.b = b;
  arrive(thread, {Kind::kMultiply, static_cast<uint8_t>(bf16 ? 1 : 0), kAllLanes, 0, site});
}

uint32_t active_mask() noexcept {
  // Which lanes are together is for the hardware to say; at least the one that asks is.
  return lane_bit(*Machine::get().running());
}

uint3 thread_index() noexcept {
  return Machine::get().running()->id;
}
uint3 block_index() noexcept {
  return Machine::get().running()->block->index;
}
dim3 block_size() noexcept {
  return Machine::get().running()->block->grid->block_size;
}
dim3 grid_size() noexcept {
  return Machine::get().running()->block->grid->size;
}

}  // namespace call
}  // namespace shardscope::emulation
