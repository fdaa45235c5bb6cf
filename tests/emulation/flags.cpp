// Atomics, flags and fences: what they do, what they publish and what they
// learn.
//
// Facts of a flag are kept for each device and for the system: a release of
// device scope is learnt only by acquires on the same device, one of system
// scope also by acquires of system scope elsewhere. A plain (relaxed) store
// ends what was published before; an atomic update adds to it.
#include <algorithm>
#include <bit>
#include <type_traits>

#include "tests/emulation/checker.hpp"

namespace shardscope::emulation {
namespace {

using call::Order;
using call::Scope;
using call::Update;

/// What the thread may say of its block now; what it does later is not part of
/// it.
KnowledgePtr release(Thread& thread) {
  Block& block = *thread.block;
  LaneClocks& clocks = block.warp_of(thread).clocks[thread.index % 32];
  BlockFacts facts;
  facts.epoch = block.epoch;
  facts.warps.emplace(static_cast<uint16_t>(thread.index / 32), clocks);
  ++clocks[thread.index % 32];
  return with_block(thread.known(), block.id, facts);
}

struct Flag {
  const void* address;
  Scope scope;
};

/// Shared memory's flags are the block's: the next one has other flags at the same addresses.
std::unordered_map<const void*, FlagFacts>& flags_of(Thread& thread, const Flag& flag) {
  Block& block = *thread.block;
  return block.shared->covers(flag.address) ? block.flags : Machine::get().flags();
}

/// `update`: an atomic update; otherwise a store.
void publish(Thread& thread, const Flag& flag, Order order, bool update) {
  const auto device = static_cast<size_t>(thread.block->grid->device);
  KnowledgePtr for_device = thread.published[0];
  KnowledgePtr for_system = thread.published[1];
  if (order == Order::kRelease) for_device = for_system = release(thread);
  if (flag.scope == Scope::kDevice) for_system = nullptr;
  auto& flags = flags_of(thread, flag);
  if (for_device == nullptr && for_system == nullptr && !flags.contains(flag.address)) return;
  FlagFacts& facts = flags[flag.address];
  if (!update) facts = {};
  facts.device[device] = joined(facts.device[device], for_device);
  facts.system = joined(facts.system, for_system);
}

void observe(Thread& thread, const Flag& flag, Order order) {
  const auto& flags = flags_of(thread, flag);
  const auto found = flags.find(flag.address);
  if (found == flags.end()) return;
  const KnowledgePtr& of_device = found->second.device[static_cast<size_t>(thread.block->grid->device)];
  const KnowledgePtr of_system = flag.scope == Scope::kSystem ? found->second.system : nullptr;
  if (order == Order::kAcquire) {
    thread.know(joined(joined(thread.known(), of_device), of_system));
  } else {
    thread.observed[0] = joined(thread.observed[0], of_device);
    thread.observed[1] = joined(thread.observed[1], of_system);
  }
}

enum class Use : uint8_t { kLoad, kStore, kUpdate };

Thread& enter(const void* address, int64_t bytes, Use use, Scope scope, const void* place) {
  Machine& machine = Machine::get();
  if (machine.checked()) {
    check_access({.address = address,
                  .bytes = bytes,
                  .write = use != Use::kLoad,
                  .place = place,
                  .atomic = true,
                  .update = use == Use::kUpdate,
                  .system = scope == Scope::kSystem});
  }
  machine.running()->place = place;
  return *machine.running();
}

template <class T>
T updated(Update kind, T old, T value, T compare) {
  switch (kind) {
    case Update::kAdd:
      // Integers wrap around, signed ones too.
      if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(static_cast<std::make_unsigned_t<T>>(old) + static_cast<std::make_unsigned_t<T>>(value));
      } else {
        return old + value;
      }
    case Update::kExchange:
      return value;
    case Update::kMax:
      return std::max(old, value);
    case Update::kMin:
      return std::min(old, value);
    case Update::kXor:
      if constexpr (std::is_integral_v<T>) return old ^ value;
      break;
    case Update::kCompareExchange:
      return old == compare ? value : old;
  }
  return old;
}

template <class T>
T do_update(Update kind, T* address, T value, T compare, Scope scope, const void* place) {
  Thread& thread = enter(address, sizeof(T), Use::kUpdate, scope, place);
  Machine& machine = Machine::get();
  if (machine.checked()) {
    observe(thread, {address, scope}, Order::kRelaxed);
    publish(thread, {address, scope}, Order::kRelaxed, true);
  }
  // Other processes may change shared memory at the same time.
  using Word = std::conditional_t<sizeof(T) == sizeof(uint32_t), uint32_t, uint64_t>;
  auto* const word = reinterpret_cast<Word*>(address);
  Word seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
  T now{};
  do {
    now = updated(kind, std::bit_cast<T>(seen), value, compare);
  } while (
      !__atomic_compare_exchange_n(word, &seen, std::bit_cast<Word>(now), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
  const T old = std::bit_cast<T>(seen);
  if (now != old) machine.note_progress();
  return old;
}

template <class T>
T do_load(const T* address, Order order, Scope scope, const void* place) {
  Thread& thread = enter(address, sizeof(T), Use::kLoad, scope, place);
  if (Machine::get().checked()) observe(thread, {address, scope}, order);
  return __atomic_load_n(address, __ATOMIC_ACQUIRE);
}

template <class T>
void do_store(T* address, T value, Order order, Scope scope, const void* place) {
  Thread& thread = enter(address, sizeof(T), Use::kStore, scope, place);
  Machine& machine = Machine::get();
  if (machine.checked()) publish(thread, {address, scope}, order, false);
  if (__atomic_exchange_n(address, value, __ATOMIC_ACQ_REL) != value) machine.note_progress();
}

}  // namespace

namespace call {

#define SHARDSCOPE_PLACE __builtin_return_address(0)

uint32_t update(Update kind, uint32_t* address, uint32_t value, uint32_t compare, Scope scope) noexcept {
  return do_update(kind, address, value, compare, scope, SHARDSCOPE_PLACE);
}
int32_t update(Update kind, int32_t* address, int32_t value, int32_t compare, Scope scope) noexcept {
  return do_update(kind, address, value, compare, scope, SHARDSCOPE_PLACE);
}
uint64_t update(Update kind, uint64_t* address, uint64_t value, uint64_t compare, Scope scope) noexcept {
  return do_update(kind, address, value, compare, scope, SHARDSCOPE_PLACE);
}
float update(Update kind, float* address, float value, float compare, Scope scope) noexcept {
  return do_update(kind, address, value, compare, scope, SHARDSCOPE_PLACE);
}
uint32_t load_flag(const uint32_t* address, Order order, Scope scope) noexcept {
  return do_load(address, order, scope, SHARDSCOPE_PLACE);
}
uint64_t load_flag(const uint64_t* address, Order order, Scope scope) noexcept {
  return do_load(address, order, scope, SHARDSCOPE_PLACE);
}
void store_flag(uint32_t* address, uint32_t value, Order order, Scope scope) noexcept {
  do_store(address, value, order, scope, SHARDSCOPE_PLACE);
}
void store_flag(uint64_t* address, uint64_t value, Order order, Scope scope) noexcept {
  do_store(address, value, order, scope, SHARDSCOPE_PLACE);
}

void fence(Scope scope) noexcept {
  Machine& machine = Machine::get();
  if (!machine.checked()) return;
  Thread& thread = *machine.running();
  thread.know(joined(thread.known(), thread.observed[0]));
  if (scope == Scope::kSystem) thread.know(joined(thread.known(), thread.observed[1]));
  const KnowledgePtr now = release(thread);
  thread.published[0] = now;
  if (scope == Scope::kSystem) thread.published[1] = now;
}

void poll_pause(const void*) noexcept {
  Machine& machine = Machine::get();
  Thread& thread = *machine.running();
  thread.place = SHARDSCOPE_PLACE;
  // With a seed a polling thread is sometimes as quick as the others.
  if (machine.seeded() && machine.random_below(4) == 0 && !thread.block->ready.empty()) {
    machine.pause(thread);
  } else {
    machine.wait(thread, State::kPolling);
  }
}

uint64_t nanoseconds() noexcept {
  return Machine::get().tick_ns();
}

void trap() noexcept {
  Machine& machine = Machine::get();
  machine.stop(Fault::kTrap, *machine.running(), SHARDSCOPE_PLACE, [] { return "the kernel called __trap()"; });
}

void grid_dependency_wait() noexcept {
  Machine& machine = Machine::get();
  Thread& thread = *machine.running();
  thread.place = SHARDSCOPE_PLACE;
  const Grid& grid = *thread.block->grid;
  while (grid.predecessor != nullptr) machine.wait(thread, State::kGridWait);
  thread.know(joined(thread.known(), grid.predecessor_done));
}

void grid_dependency_launch() noexcept {
  Machine& machine = Machine::get();
  machine.trigger(*machine.running()->block);
}

}  // namespace call
}  // namespace shardscope::emulation
