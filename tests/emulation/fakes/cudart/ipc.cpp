// Sharing device memory between processes. A handle says whose file the bytes lie in and where; the other process opens
// that file through /proc and maps it. Nothing has a name, so that nothing is left behind, however a process ends.
#include "tests/emulation/fakes/cudart/ipc.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <optional>
#include <random>

#include "tests/emulation/emulation.hpp"
#include "tests/emulation/fakes/cudart/runtime.hpp"

namespace shardscope::emulation {
namespace {

constexpr uint32_t kMagic = 0x5CA1AB1E;
constexpr int64_t kMostExported = 4096;
constexpr int64_t kTableBytes = kMostExported * static_cast<int64_t>(sizeof(Exported));

/// What a cudaIpcMemHandle_t holds here.
struct Handle {
  uint32_t magic;
  int32_t pid;
  int32_t file;   // descriptors of that process: of its device memory,
  int32_t table;  // and of its Exported
  int32_t slot;
  int32_t gpu;   // of the machine
  uint64_t era;  // of the process: another one after each restart
  int64_t number;
  int64_t offset;
  int64_t bytes;
};
static_assert(sizeof(Handle) <= sizeof(cudaIpcMemHandle_t));

struct Ipc {
  std::optional<SharedFile> table;  // ours
  int pid = 0;
  uint64_t era = 0;
  int used_slots = 0;
  std::deque<SharedFile> foreign;  // tables of others; kept, since allocations point into them
};

Ipc& ipc() {
  static auto& it = *new Ipc;
  return it;
}

Exported* slot_of(const SharedFile& table, int slot) {
  return reinterpret_cast<Exported*>(table.data()) + slot;
}

/// The one that this device has opened by that handle already.
Allocation* opened_before(const cudaIpcMemHandle_t& handle, int device) {
  for (const Allocation& allocation : Machine::get().memory().allocations()) {
    if (allocation.device != kImported || allocation.freed || allocation.importer != device) continue;
    if (std::memcmp(allocation.its_handle.data(), &handle, sizeof(handle)) == 0) {
      return const_cast<Allocation*>(&allocation);
    }
  }
  return nullptr;
}

bool enter_opener(Exported& exported) {
  for (std::atomic<int>& opener : exported.openers) {
    int before = opener;
    if (before != 0 && !process_has_ended(before)) continue;
    if (opener.compare_exchange_strong(before, getpid())) return true;
  }
  return false;
}

void leave_opener(Exported& exported) {
  for (std::atomic<int>& opener : exported.openers) {
    int self = getpid();
    if (opener.compare_exchange_strong(self, 0)) return;
  }
}

}  // namespace

void forget_ipc() {
  Ipc& it = ipc();
  // A process that was forked has its parent's table, and the parent goes on.
  const bool ours = it.pid == getpid();
  for (int slot = 0; ours && slot < it.used_slots; ++slot) slot_of(*it.table, slot)->lives = false;
  for (const Allocation& allocation : Machine::get().memory().allocations()) {
    if (allocation.device == kImported && !allocation.freed) leave_opener(*allocation.exported);
  }
  it = {};
}

void end_export(const Allocation& allocation) {
  if (allocation.exported == nullptr) return;
  allocation.exported->lives = false;
  if (Machine::get().stopped()) return;
  for (const std::atomic<int>& opener : allocation.exported->openers) {
    if (opener == 0 || process_has_ended(opener)) continue;
    report_host_fault(
        Fault::kLifetime,
        fmt::format("cudaFree of {}, which process {} still has open", allocation.description(), opener.load()), true);
    return;
  }
}

}  // namespace shardscope::emulation

using namespace shardscope::emulation;  // NOLINT(google-build-using-namespace): these have C names

extern "C" {

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* address) {
  const Call call("cudaIpcGetMemHandle");
  if (call.fails()) return failure(call);
  if (failed()) return answer(cudaSuccess);
  if (handle == nullptr) return refused(call, cudaErrorInvalidValue, "nowhere to put the handle");
  Allocation* const allocation = live_allocation(address, 0);
  if (allocation == nullptr || allocation->begin != address || allocation->device >= kMostDevices ||
      allocation->library_memory) {
    return refused(call, cudaErrorInvalidValue, "not the begin of an allocation by cudaMalloc");
  }
  Machine& machine = Machine::get();
  Ipc& it = ipc();
  if (!it.table) {
    it.table.emplace(kTableBytes);
    it.pid = getpid();
    it.era = std::random_device()();
  }
  if (!it.table->exists()) return refused(call, cudaErrorOperatingSystem, "no memory to share");
  if (allocation->exported == nullptr) {
    if (it.used_slots == kMostExported) return refused(call, cudaErrorMapBufferObjectFailed, "too many handles");
    allocation->exported = slot_of(*it.table, it.used_slots++);
    allocation->exported->number = allocation->number;
    allocation->exported->era = it.era;
    allocation->exported->lives = true;
    // What others write to it is not seen here.
    allocation->written.set(0, allocation->bytes, true);
    machine.shared_with_others();
  }
  *handle = {};
  const Handle value{.magic = kMagic,
                     .pid = getpid(),
                     .file = machine.memory().file(),
                     .table = it.table->descriptor(),
                     .slot = static_cast<int>(allocation->exported - slot_of(*it.table, 0)),
                     .gpu = gpu_of_device(allocation->device),
                     .era = it.era,
                     .number = allocation->number,
                     .offset = machine.memory().offset_in_file(*allocation),
                     .bytes = allocation->bytes};
  std::memcpy(handle, &value, sizeof(value));
  return answer(cudaSuccess);
}

cudaError_t cudaIpcOpenMemHandle(void** address, cudaIpcMemHandle_t handle, unsigned flags) {
  const Call call("cudaIpcOpenMemHandle");
  if (call.fails()) return failure(call);
  if (failed()) return answer(cudaSuccess);
  if (address == nullptr) return refused(call, cudaErrorInvalidValue, "nowhere to put the address");
  *address = nullptr;
  if (flags != cudaIpcMemLazyEnablePeerAccess) {
    return refused(call, cudaErrorInvalidValue, "the flags have to be cudaIpcMemLazyEnablePeerAccess");
  }
  Handle value{};
  std::memcpy(&value, &handle, sizeof(value));
  if (value.magic != kMagic) return refused(call, cudaErrorInvalidResourceHandle, "no handle");
  if (value.pid == getpid()) {
    return refused(call, cudaErrorInvalidResourceHandle, "the handle is of this process: it has the address already");
  }
  Machine& machine = Machine::get();
  const int device = current_device();
  if (value.gpu != gpu_of_device(device) && machine.peer_access(device, value.gpu) == PeerAccess::kNone) {
    return refused(call, cudaErrorPeerAccessUnsupported,
                   fmt::format("GPU {} has no peer access to GPU {}", gpu_of_device(device), value.gpu));
  }
  if (Allocation* const before = opened_before(handle, device)) {
    ++before->opened;
    *address = before->begin;
    return answer(cudaSuccess);
  }
  SharedFile table(value.pid, value.table, kTableBytes);
  if (!table.exists()) {
    return refused(call, cudaErrorInvalidResourceHandle, fmt::format("process {} is gone", value.pid));
  }
  Exported& exported = *slot_of(table, value.slot);
  if (exported.era != value.era || exported.number != value.number || !exported.lives) {
    return refused(call, cudaErrorInvalidResourceHandle, fmt::format("process {} has freed that memory", value.pid));
  }
  const int file = open(fmt::format("/proc/{}/fd/{}", value.pid, value.file).c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return refused(call, cudaErrorInvalidResourceHandle, fmt::format("process {} is gone", value.pid));
  const bool losing =
      value.gpu != gpu_of_device(device) && machine.peer_access(device, value.gpu) == PeerAccess::kLosesWrites;
  Allocation* const allocation = machine.memory().map_foreign(file, value.offset, value.bytes, losing);
  close(file);
  if (allocation == nullptr || !enter_opener(exported)) {
    if (allocation != nullptr) machine.memory().free(allocation->begin);
    return refused(call, cudaErrorMapBufferObjectFailed, "the memory cannot be mapped");
  }
  allocation->importer = device;
  allocation->opened = 1;
  allocation->exported = &exported;
  const auto* const bytes = reinterpret_cast<const std::byte*>(&handle);
  allocation->its_handle.assign(bytes, bytes + sizeof(handle));
  allocation->written.set(0, allocation->bytes, true);  // by whom is not known here
  ipc().foreign.push_back(std::move(table));
  machine.shared_with_others();
  *address = allocation->begin;
  return answer(cudaSuccess);
}

cudaError_t cudaIpcCloseMemHandle(void* address) {
  const Call call("cudaIpcCloseMemHandle");
  if (call.fails()) return failure(call);
  Allocation* const allocation = live_allocation(address, 0);
  if (allocation == nullptr || allocation->begin != address || allocation->device != kImported) {
    return refused(call, cudaErrorInvalidValue, "not an address that cudaIpcOpenMemHandle gave");
  }
  if (--allocation->opened > 0) return answer(cudaSuccess);
  // Does not wait: nobody says that the real one does. What still uses the memory faults.
  leave_opener(*allocation->exported);
  Machine::get().memory().free(address);
  return answer(cudaSuccess);
}

}  // extern "C"
