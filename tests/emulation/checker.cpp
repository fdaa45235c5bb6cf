#include "tests/emulation/checker.hpp"

#include <fmt/format.h>
#include <link.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/emulation/fakes/cudart/ipc.hpp"
#include "tests/emulation/symbols.hpp"

namespace shardscope::emulation {
namespace {

std::string_view verb(bool write, bool atomic, bool update = false) {
  if (update) return "atomic update";
  if (atomic) return write ? "atomic store" : "atomic load";
  return write ? "store" : "load";
}

/// True for what a program may only read: the constants that compilers laid into the program and its libraries. (Not
/// any memory without write access: a mapped file is host memory.)
bool is_constant(const void* address) {
  struct Search {
    uintptr_t address;
    bool found;
  } search{reinterpret_cast<uintptr_t>(address), false};
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* data) {
        auto& it = *static_cast<Search*>(data);
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const auto& segment = object->dlpi_phdr[i];
          const uintptr_t begin = object->dlpi_addr + segment.p_vaddr;
          if (segment.p_type == PT_LOAD && (segment.p_flags & PF_W) == 0 && it.address >= begin &&
              it.address < begin + segment.p_memsz) {
            it.found = true;
          }
        }
        return it.found ? 1 : 0;
      },
      &search);
  return search.found;
}

/// Accesses of other blocks are of other kernels or of this block's predecessors in the same arena: no conflict.
struct SharedObserver final : Observer {
  explicit SharedObserver(const Thread& thread) : thread_(thread) { known_before_ = thread.block->id; }

 private:
  bool knows_later(const Access& earlier) const override {
    return earlier.block != thread_.block->id || thread_.knows(earlier);
  }

  const Thread& thread_;
};

Access stamped(const Thread& thread, const CheckedAccess& access) {
  Access stamp;
  stamp.block = thread.block->id;
  stamp.epoch = thread.block->epoch;
  stamp.step = thread.block->warp_of(thread).clocks[thread.index % 32][thread.index % 32];
  stamp.place = packed_place(access.place);
  stamp.thread = thread.index;
  stamp.device = static_cast<uint8_t>(thread.block->grid->device);
  stamp.atomic = access.atomic;
  stamp.system = access.system;
  stamp.pending = access.pending;
  stamp.completes = access.completes;
  return stamp;
}

/// What an access did wrong.
struct Finding {
  Fault fault;
  std::string what;  // follows "4-byte load "
};
using Verdict = std::optional<Finding>;

Finding race_finding(Fault fault, const Thread& thread, const Race& race, const std::string& where) {
  std::string by = Machine::get().describe(race.earlier);
  if (race.earlier.block == thread.block->id) by = by.substr(0, by.find(" of kernel"));
  const std::string at = race.earlier.copy ? "" : " at " + place_of(unpacked_place(race.earlier.place));
  if (race.earlier.pending) {
    return {fault, fmt::format("of {}, while the cp.async by {}{} is under way", where, by, at)};
  }
  return {fault, fmt::format("of {}, without an order after the {} by {}{}", where,
                             verb(race.earlier.wrote, race.earlier.atomic), by, at)};
}

/// How far an access lies outside [begin, begin + bytes).
std::string distance(const void* address, const std::byte* begin, int64_t bytes) {
  const int64_t offset = static_cast<const std::byte*>(address) - begin;
  return offset < 0 ? fmt::format("{} bytes before", -offset)
                    : fmt::format("at byte {}, {} bytes past the end of", offset, offset - bytes);
}

/// Judges an access of the block's shared memory, and notes it.
Verdict judge_shared(const Thread& thread, const CheckedAccess& access) {
  SharedMemory& shared = *thread.block->shared;
  const SharedMemory::Variable* const variable = shared.find(access.address);
  const auto* const at = static_cast<const std::byte*>(access.address);
  if (variable == nullptr) {
    const SharedMemory::Variable* const near = shared.nearest(access.address);
    return Finding{Fault::kOutOfBounds,
                   near == nullptr
                       ? "of shared memory, of which the launch gave no dynamic bytes and the block has no variable"
                       : fmt::format("{} shared variable {} ({} bytes)", distance(at, near->begin, near->bytes),
                                     near->name, near->bytes)};
  }
  const int64_t offset = at - variable->begin;
  if (offset + access.bytes > variable->bytes) {
    return Finding{Fault::kOutOfBounds, fmt::format("at byte {} runs past the end of shared variable {} ({} bytes)",
                                                    offset, variable->name, variable->bytes)};
  }
  const auto where = [&] { return fmt::format("byte {} of shared variable {}", offset, variable->name); };
  Race race;
  if (shared.shadow().note(shared.offset(at), access.bytes, access.write, stamped(thread, access),
                           SharedObserver(thread), &race)) {
    return race_finding(Fault::kSharedRace, thread, race, where());
  }
  if (access.reads() && shared.written().first_unwritten(shared.offset(at), access.bytes) >= 0) {
    return Finding{Fault::kUninitialised,
                   fmt::format("of {}, which nobody has written, or whose cp.async has not been waited for", where())};
  }
  if (access.write) shared.written().set(shared.offset(at), access.bytes, !access.pending);
  return {};
}

/// Judges an access of device or pinned memory, and notes it.
Verdict judge_global(const Thread& thread, const CheckedAccess& access) {
  Machine& machine = Machine::get();
  const auto* const at = static_cast<const std::byte*>(access.address);
  Allocation* const allocation = machine.memory().find(at);
  if (allocation == nullptr) {
    const Allocation* const near = machine.memory().nearest(at);
    return Finding{Fault::kOutOfBounds,
                   near == nullptr ? "of device memory where nothing was ever allocated"
                                   : fmt::format("{} {}", distance(at, near->begin, near->bytes), near->description())};
  }
  const int64_t offset = at - allocation->begin;
  const auto where = [&] { return fmt::format("byte {} of {}", offset, allocation->description()); };
  if (allocation->freed || (allocation->exported != nullptr && !still_lives(*allocation->exported)))
    return Finding{Fault::kUseAfterFree, fmt::format("of {}, which was freed", where())};
  if (offset + access.bytes > allocation->bytes) {
    return Finding{Fault::kOutOfBounds,
                   fmt::format("at byte {} runs past the end of {}", offset, allocation->description())};
  }
  const int device = thread.block->grid->device;
  if (allocation->device == kImported ? allocation->importer != device
                                      : allocation->device != device && allocation->device != kPinned &&
                                            !machine.peer_enabled[device][allocation->device]) {
    return Finding{Fault::kPeerAccess,
                   fmt::format("of {} by device {}, whose access to it was not enabled", where(), device)};
  }
  Race race;
  if (allocation->shadow.note(offset, access.bytes, access.write, stamped(thread, access), thread, &race)) {
    return race_finding(Fault::kGlobalRace, thread, race, where());
  }
  const int64_t unwritten = access.reads() ? allocation->written.first_unwritten(offset, access.bytes) : -1;
  if (unwritten >= 0) {
    return Finding{Fault::kUninitialised, fmt::format("of {}: byte {} was never written", where(), unwritten)};
  }
  if (access.write) allocation->written.set(offset, access.bytes, true);
  return {};
}

void count(const Thread& thread, const CheckedAccess& access, bool shared) {
  Machine& machine = Machine::get();
  KernelCounts& counts = *thread.block->grid->counts;
  ++counts.accesses;
  const Allocation* const allocation = shared ? nullptr : machine.memory().find(access.address);
  if (shared) counts.add(kSharedClass, access.write, access.bytes);
  if (allocation != nullptr) counts.add(allocation->allocation_class, access.write, access.bytes);
  if (machine.options().count_requests) {
    thread.block->requests.note(thread.index, access.place,
                                shared         ? RequestKind::kShared
                                : access.write ? RequestKind::kGlobalStore
                                               : RequestKind::kGlobalLoad,
                                reinterpret_cast<uint64_t>(access.address), access.bytes);
  }
}

Verdict judge(const Thread& thread, const CheckedAccess& access) {
  Machine& machine = Machine::get();
  const bool shared = thread.block->shared->covers(access.address);
  if (!shared && !machine.memory().covers(access.address)) {
    if (Fibre::any_owns(access.address)) return Finding{Fault::kForeignLocal, "of another thread's local memory"};
    if (!access.write && is_constant(access.address)) return {};
    const auto at = reinterpret_cast<uintptr_t>(access.address);
    constexpr uintptr_t kFirstPage = 4096;
    return Finding{Fault::kHostMemory,
                   fmt::format("of host memory at 0x{:x}{}", at, at < kFirstPage ? ": a null pointer" : "")};
  }
  if (access.aligned && reinterpret_cast<uintptr_t>(access.address) % static_cast<uint64_t>(access.bytes) != 0) {
    return Finding{Fault::kMisaligned, fmt::format("at address 0x{:x}, which is no multiple of {}",
                                                   reinterpret_cast<uintptr_t>(access.address), access.bytes)};
  }
  if (!access.completes) count(thread, access, shared);
  return shared ? judge_shared(thread, access) : judge_global(thread, access);
}

}  // namespace

void check_access(const CheckedAccess& access) {
  Machine& machine = Machine::get();
  Thread* const thread = machine.running();
  if (thread == nullptr || access.bytes <= 0 || thread->fibre.owns(access.address)) return;
  if (Verdict verdict = judge(*thread, access)) {
    machine.stop(verdict->fault, *thread, access.place, [&] {
      return fmt::format("{}-byte {} {}", access.bytes, verb(access.write, access.atomic, access.update),
                         std::exchange(verdict->what, std::string()));
    });
  }
  if (--thread->accesses_to_pause <= 0) machine.pause_at_access(*thread);
}

void Thread::know(KnowledgePtr all) {
  known_ = std::move(all);
  known_before_ = known_ == nullptr ? 0 : known_->complete_before();
}

bool Thread::knows_later(const Access& earlier) const {
  if (earlier.block == block->id) {
    if (earlier.thread == index || earlier.epoch < block->epoch) return true;
    if (earlier.thread / 32 == index / 32 &&
        earlier.step <= block->warps[index / 32].clocks[index % 32][earlier.thread % 32]) {
      return true;
    }
  }
  return known_ != nullptr && known_->covers(earlier.stamp());
}

bool check_runtime_access(BlockId block, const Observer& observer, Allocation& allocation, int64_t offset,
                          int64_t bytes, bool write) {
  Machine& machine = Machine::get();
  Access stamp;
  stamp.block = block;
  stamp.epoch = 1;
  stamp.step = 1;
  stamp.copy = true;
  Race race;
  if (!allocation.shadow.note(offset, bytes, write, stamp, observer, &race)) return true;
  const std::string operation = machine.describe(stamp);
  const std::string at = race.earlier.copy ? "" : " at " + place_of(unpacked_place(race.earlier.place));
  machine.record(Fault::kGlobalRace, "",
                 fmt::format("{}: {} of byte {} of {}, without an order after the {} by {}{}", name(Fault::kGlobalRace),
                             operation, offset, allocation.description(), verb(race.earlier.wrote, race.earlier.atomic),
                             machine.describe(race.earlier), at));
  return false;
}

}  // namespace shardscope::emulation
