#include "tests/emulation/fakes/call.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "kernels/base/error.hpp"
#include "tests/emulation/emulation.hpp"
#include "tests/emulation/fakes/cudart/runtime.hpp"
#include "tests/emulation/fakes/cudart/streams.hpp"
#include "tests/emulation/fakes/lock.hpp"
#include "tests/emulation/watchdog.hpp"

namespace shardscope::emulation {
namespace {

using Clock = std::chrono::steady_clock;

struct Record {
  std::map<std::string, int64_t, std::less<>> calls;      // since clear_calls
  std::map<std::string, int64_t, std::less<>> all_calls;  // since the restart
  std::string refusal;
  std::vector<void (*)()> forgetters;
  std::vector<std::string (*)(const void* begin, int64_t bytes)> free_watchers;
  std::vector<const Held*> held;
};

Record& record() {
  static auto& it = *new Record;  // never destroyed: what is held may be given back late
  return it;
}

/// The error that the function gives on this machine whatever it is asked: there is no device, or the driver is older
/// than the runtime. 0: none. As the real ones do without a driver.
int error_of_machine(std::string_view function) {
  constexpr std::string_view kNeedNothing[] = {"cudaDriverGetVersion", "cudaRuntimeGetVersion", "cudaGetLastError",
                                               "cudaPeekAtLastError"};
  constexpr std::string_view kLibrariesThatBegin[] = {"cublasLtCreate", "ncclCommInitRank", "ncclCommInitRankConfig",
                                                      "ncclCommInitAll", "ncclMemAlloc"};
  const Machine& machine = Machine::get();
  const int driver = machine.table().cuda_driver_version / 1000;
  const bool too_old = driver < CUDART_VERSION / 1000;
  if (!too_old && machine.devices() > 0) return 0;
  if (function.starts_with("cuda")) {
    if (std::find(std::begin(kNeedNothing), std::end(kNeedNothing), function) != std::end(kNeedNothing)) return 0;
    return too_old ? cudaErrorInsufficientDriver : cudaErrorNoDevice;
  }
  constexpr int kLibraryError = 1;  // CUBLAS_STATUS_NOT_INITIALIZED and ncclUnhandledCudaError
  const bool begins = std::find(std::begin(kLibrariesThatBegin), std::end(kLibrariesThatBegin), function) !=
                      std::end(kLibrariesThatBegin);
  return begins ? kLibraryError : 0;
}

}  // namespace

// ---- calls ----------------------------------------------------------------------------------------------------------

Call::Call(const char* function) : function_(function) {
  Machine& machine = Machine::get();  // before the lock: it may be made now
  lock_for_call();
  ++record().calls[function_];
  const int64_t nth = ++record().all_calls[function_];
  if (const int error = error_of_machine(function_); error != 0) {
    fails_ = true;
    ordered_error_ = error;
    refuse("no device is visible, or the driver is older than the runtime");
  }
  for (const FailingCall& failing : machine.options().failing) {
    if (failing.function != function_ || (nth != failing.nth && !(failing.from_then_on && nth > failing.nth))) continue;
    fails_ = true;
    ordered_error_ = failing.error;
    refuse(fmt::format("call {} was to fail", nth));
  }
}

Call::~Call() {
  unlock_after_call();
}

void Call::refuse(std::string_view why) const {
  record().refusal = fmt::format("{}: {}", function_, why);
}

bool Call::wait_until(const std::function<bool()>& done, int64_t milliseconds) const {
  Machine& machine = Machine::get();
  const Clock::time_point end = Clock::now() + std::chrono::milliseconds(milliseconds);
  const auto late = [&] { return milliseconds > 0 && Clock::now() >= end; };
  if (machine.options().policy == Policy::kWorker) {
    while (!done()) {
      if (machine.stopped() || late()) return false;
      wait_for_worker();
    }
    return true;
  }
  // What only waits is reported when the time is up; a kernel that goes on for ever is ended, somewhat later.
  const Watchdog watchdog(machine.options().seconds_to_end + 1);
  Clock::time_point looked = Clock::now();
  uint64_t progress_then = machine.progress();
  const Opened opened;
  for (int64_t turn = 1; !done(); ++turn) {
    if (machine.stopped() || late()) return false;
    constexpr int64_t kTurnsALook = 1024;
    if (turn % kTurnsALook == 0 && machine.progress() != progress_then &&
        Clock::now() - looked > std::chrono::milliseconds(500)) {
      watchdog.begin_anew();
      looked = Clock::now();
      progress_then = machine.progress();
    }
    const uint64_t progress = machine.progress();
    const Step step = machine.step(executor());
    if (step == Step::kRan) continue;
    // Nothing that this process could do, unless somebody else does something first.
    if (milliseconds > 0 || machine.real_time() || executor().waits_for_others()) {
      watchdog.begin_anew();  // no kernel goes on for ever: the machine came to rest
      pause_for_others();
    } else if (!machine.stopped() && (step == Step::kNothing ? !done()
                                                             : executor().waits() && machine.only_works_wait() &&
                                                                   machine.progress() == progress)) {
      machine.give_up(executor());  // for calls that this host would have to make, and it stands here
    }
  }
  return true;
}

std::map<std::string, int64_t> calls() {
  const Locked locked;
  return {record().calls.begin(), record().calls.end()};
}

void clear_calls() {
  const Locked locked;
  record().calls.clear();
}

std::string take_refusal() {
  const Locked locked;
  return std::exchange(record().refusal, std::string());
}

void forget_calls() {
  record().calls.clear();
  record().all_calls.clear();
  record().refusal.clear();
  for (void (*const forget)() : record().forgetters) forget();
}

bool at_restart(void (*forget)()) {
  record().forgetters.push_back(forget);
  return true;
}

// ---- what is held ---------------------------------------------------------------------------------------------------

Held::Held(std::string what) : what_(std::move(what)) {
  record().held.push_back(this);
}

Held::~Held() {
  std::erase(record().held, this);
}

std::vector<std::string> not_given_back() {
  const Locked locked;
  std::vector<std::string> all;
  for (const Held* const one : record().held) all.push_back(one->what());
  for (const Allocation& allocation : Machine::get().memory().allocations()) {
    if (!allocation.freed) all.push_back(allocation.description());
  }
  return all;
}

// ---- what libraries use ---------------------------------------------------------------------------------------------

bool graphs_hold(const void* serial_key) {
  return handles().graphs_hold(serial_key);
}

bool streams_hold(const void* serial_key) {
  return executor().holds(serial_key);
}

bool find_memory(const void* address, Memory& memory) {
  const DeviceMemory& known = Machine::get().memory();
  if (!known.covers(address)) return false;
  memory = {.device = known.device_of(address)};
  if (const Allocation* const allocation = known.find(address)) {
    memory.live = !allocation->freed;
    memory.begin = allocation->begin;
    memory.bytes = allocation->bytes;
  }
  return true;
}

bool is_device_memory(const void* address, int64_t bytes, int device, std::string& why) {
  Memory memory;
  if (bytes < 0) {
    why = fmt::format("{} bytes", bytes);
  } else if (address == nullptr) {
    why = "a null pointer";
  } else if (!find_memory(address, memory)) {
    why = "host memory that no device sees";
  } else if (memory.device == kPinned) {
    why = "pinned host memory";
  } else if (!memory.live) {
    why = "device memory that was freed or never allocated";
  } else if (memory.device != device) {
    why = memory.device == kImported ? "another process's memory"
                                     : fmt::format("memory of device {}, not {}", memory.device, device);
  } else if (static_cast<const std::byte*>(address) + bytes > memory.begin + memory.bytes) {
    why = fmt::format("device memory that ends after {} of {} bytes",
                      memory.begin + memory.bytes - static_cast<const std::byte*>(address), bytes);
  } else {
    return true;
  }
  return false;
}

int device_of_stream(cudaStream_t stream) {
  const Stream* const found = handles().find(stream);
  return found == nullptr ? -1 : found->device;
}

bool is_capturing(cudaStream_t stream) {
  const Stream* const found = handles().find(stream);
  return found != nullptr && found->capture != nullptr;
}

int gpu_of_device(int device) {
  return Machine::get().visible()[static_cast<size_t>(device)];
}

cudaError_t enqueue_work(const Call& call, cudaStream_t stream, std::shared_ptr<const Work> work) {
  Stream* const found = handles().find(stream);
  if (found == nullptr) {
    call.refuse("no such stream");
    return cudaErrorInvalidResourceHandle;
  }
  if (Machine::get().stopped()) return cudaErrorLaunchFailure;
  Operation operation;
  operation.work = std::move(work);
  const cudaError_t error = enqueue(call, *found, std::move(operation));
  wake_worker();
  return error;
}

std::byte* allocate_for_library(int device, int64_t bytes, int64_t alignment) {
  Machine& machine = Machine::get();
  if (bytes <= 0 || bytes > machine.free_bytes(device)) return nullptr;
  const int64_t limit = machine.free_bytes(device) + machine.memory().used_bytes(device);
  Allocation* const allocation = machine.memory().allocate(device, bytes, limit, alignment);
  if (allocation == nullptr) return nullptr;
  allocation->library_memory = true;
  return allocation->begin;
}

bool free_for_library(const Call& call, void* begin) {
  Machine& machine = Machine::get();
  if (!machine.memory().covers(begin)) return false;
  const Allocation* const allocation = machine.memory().find(begin);
  if (allocation == nullptr || !allocation->library_memory || allocation->freed || allocation->begin != begin) {
    return false;
  }
  drain(call, allocation->device);
  if (allocation->freed) return false;  // by another thread, meanwhile
  if (!machine.stopped()) report_needed(*allocation);
  return machine.memory().free(begin);
}

void report_host_fault(Fault fault, const std::string& message, bool stops) {
  Machine::get().record(fault, "", fmt::format("{}: {}", name(fault), message), stops);
}

bool watch_frees(std::string (*why_needed)(const void* begin, int64_t bytes)) {
  record().free_watchers.push_back(why_needed);
  return true;
}

void report_needed(const Allocation& allocation) {
  for (auto* const why_needed : record().free_watchers) {
    const std::string why = why_needed(allocation.begin, allocation.bytes);
    if (why.empty()) continue;
    report_host_fault(Fault::kLifetime, fmt::format("{} is freed, {}", allocation.description(), why), true);
    return;
  }
}

const Options& current_options() {
  return Machine::get().options();
}

// ---- between processes ----------------------------------------------------------------------------------------------

SharedFile::SharedFile(int64_t bytes)
    : bytes_(bytes), descriptor_(memfd_create("emulated shared memory", MFD_CLOEXEC)) {
  if (descriptor_ < 0 || ftruncate(descriptor_, bytes) != 0) return;
  void* const mapped =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor_, 0);
  if (mapped != MAP_FAILED) memory_ = static_cast<std::byte*>(mapped);
}

SharedFile::SharedFile(int pid, int descriptor, int64_t bytes) : bytes_(bytes) {
  descriptor_ = open(fmt::format("/proc/{}/fd/{}", pid, descriptor).c_str(), O_RDWR | O_CLOEXEC);
  // By now the descriptor may be another file's: only those without a name have seals.
  if (descriptor_ < 0 || fcntl(descriptor_, F_GET_SEALS) < 0 || lseek(descriptor_, 0, SEEK_END) < bytes) return;
  void* const mapped =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor_, 0);
  if (mapped != MAP_FAILED) memory_ = static_cast<std::byte*>(mapped);
}

SharedFile::SharedFile(SharedFile&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)),
      bytes_(other.bytes_),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

SharedFile& SharedFile::operator=(SharedFile&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

SharedFile::~SharedFile() {
  if (memory_ != nullptr) munmap(memory_, static_cast<size_t>(bytes_));
  if (descriptor_ >= 0) close(descriptor_);
}

bool process_has_ended(int pid) {
  // Also true of one whose parent has not asked for its status yet, unlike kill(pid, 0).
  const auto descriptor = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  require(descriptor >= 0 || errno == ESRCH, "emulation: no descriptor to look at a process");
  if (descriptor < 0) return true;
  pollfd ended{.fd = descriptor, .events = POLLIN, .revents = 0};
  const bool has = poll(&ended, 1, 0) > 0;
  close(descriptor);
  return has;
}

}  // namespace shardscope::emulation
