// Shared memory's variables and asynchronous copies to it. A copy is done as late as its thread's wait allows, or, with
// a seed, sometimes at once; until the wait its bytes count as not written, and its target as written to.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/emulation/checker.hpp"

namespace shardscope::emulation {
namespace {

constexpr int kPoison = 0xFF;

void perform(const Copy& copy) {
  if (copy.valid) {
    std::memcpy(copy.shared, copy.global, static_cast<size_t>(copy.bytes));
  } else {
    std::memset(copy.shared, 0, static_cast<size_t>(copy.bytes));
  }
}

/// The accesses of a copy: at its begin (`pending`), and once more when it is waited for, since it may be done at any
/// time between.
void check_copy(const Copy& copy, bool pending) {
  if (copy.valid) {
    check_access(
        {.address = copy.global, .bytes = copy.bytes, .place = copy.place, .pending = pending, .completes = !pending});
  }
  check_access({.address = copy.shared,
                .bytes = copy.bytes,
                .write = true,
                .place = copy.place,
                .pending = pending,
                .completes = !pending});
}

}  // namespace

namespace call {

void* shared_variable(const void* key, size_t bytes, const char* name) noexcept {
  Machine& machine = Machine::get();
  Thread& thread = *machine.running();
  std::byte* const variable = thread.block->shared->variable(key, static_cast<int64_t>(bytes), name);
  if (variable == nullptr) {
    machine.stop(Fault::kOutOfBounds, thread, __builtin_return_address(0),
                 [&] { return fmt::format("no shared memory left for {} ({} bytes)", name, bytes); });
  }
  return variable;
}

void* dynamic_shared() noexcept {
  return Machine::get().running()->block->shared->dynamic();
}

void cp_async(void* shared, const void* global, int bytes, bool valid) noexcept {
  Machine& machine = Machine::get();
  Thread& thread = *machine.running();
  const Copy copy{static_cast<std::byte*>(shared), static_cast<const std::byte*>(global), bytes, valid,
                  __builtin_return_address(0)};
  if (machine.checked()) {
    if (!thread.block->shared->covers(shared)) {
      machine.stop(Fault::kOutOfBounds, thread, copy.place, [] { return "cp.async to what is not shared memory"; });
    }
    check_copy(copy, true);
  }
  std::memset(shared, kPoison, static_cast<size_t>(bytes));
  if (machine.random_below(2) == 1) perform(copy);
  thread.copies.push_back(copy);
}

void cp_async_commit() noexcept {
  Thread& thread = *Machine::get().running();
  thread.copy_groups.push_back(thread.copies.size());
}

void cp_async_wait(int pending) noexcept {
  Machine& machine = Machine::get();
  Thread& thread = *machine.running();
  const auto done_groups = std::ssize(thread.copy_groups) - pending;
  if (done_groups <= 0) return;
  size_t done = thread.copy_groups[static_cast<size_t>(done_groups) - 1];
  thread.copy_groups.erase(thread.copy_groups.begin(), thread.copy_groups.begin() + done_groups);
  for (size_t& end : thread.copy_groups) end -= done;
  for (; done > 0; --done) {
    const Copy copy = thread.copies.front();
    thread.copies.erase(thread.copies.begin());
    if (machine.checked()) check_copy(copy, false);
    perform(copy);
  }
}

}  // namespace call
}  // namespace shardscope::emulation
