// Memory of NCCL's own allocator, and what communicators are told of memory: windows and buffers.
#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "tests/emulation/emulation.hpp"
#include "tests/emulation/fakes/lock.hpp"
#include "tests/emulation/fakes/nccl/communicator.hpp"
#include "tests/emulation/fakes/nccl/nccl_fake.hpp"
#include "tests/emulation/machine.hpp"

namespace shardscope::emulation::nccl {
namespace {

/// What a GPU's memory is mapped in (the granularity that cuMemGetAllocationGranularity gives on data centre GPUs).
constexpr int64_t kGranularity = 2 << 20;
// No memory is larger, and as a number of bytes it is still positive.
constexpr size_t kMostBytes = size_t{1} << 48;

/// Waits until all ranks have asked for their part of a window.
class RegisterWindow final : public Task {
 public:
  RegisterWindow(std::shared_ptr<Communicator> communicator, Registration registration, int flags,
                 ncclWindow_t* variable)
      : Task(std::move(communicator)),
        registration_(std::move(registration)),
        facts_{.bytes = registration_.bytes, .flags = flags},
        variable_(variable) {}

 private:
  bool step() override {
    Communicator& it = communicator();
    if (number_ < 0) {
      // Facts stay until all ranks have compared them.
      if (it.next_window - it.windows_over >= kWindowsAtOnce) return false;
      number_ = it.next_window++;
      it.own_place().window_facts[number_ % kWindows] = facts_;
      it.own_place().windows = number_ + 1;
      begin_ = Clock::now();
    }
    if (number_ != it.windows_over) return false;  // in their order: so, those before are over on this rank
    for (int rank = 0; rank < it.ranks; ++rank) {
      if (it.clique.place(rank).windows <= number_) return look_at(rank);
    }
    // Not before all have come, so that all name the same two.
    if (const Verdict verdict = it.different_windows(number_); !verdict.good()) {
      report_host_fault(Fault::kRankMismatch, verdict.why, false);
      return end_window(verdict);
    }
    registration_.number = number_;
    registration_.held =
        std::make_unique<Held>(fmt::format("NCCL window of {} bytes, {}", registration_.bytes, it.description()));
    void* const handle = library().new_handle();
    it.registrations.emplace(handle, std::move(registration_));
    *variable_ = static_cast<ncclWindow_t>(handle);
    return end_window({});
  }

  void leave() override {
    if (number_ >= 0) ++communicator().windows_over;
  }

  bool end_window(const Verdict& verdict) {
    ++communicator().windows_over;
    return end(verdict);
  }

  /// At a rank that has not come.
  bool look_at(int rank) {
    const Communicator& it = communicator();
    // Asked again after what it may have done last, since it may have come and have ended properly meanwhile.
    const auto is_behind = [&] { return it.clique.place(rank).windows <= number_; };
    const Place& place = it.clique.place(rank);
    const NcclOptions& options = Machine::get().options().nccl;
    const int64_t waited = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin_).count();
    if ((place.presence == Presence::kAborted || place.presence == Presence::kLeft) && is_behind()) {
      return give_up(
          {ncclRemoteError, fmt::format("{} has left the communicator before window {}", it.other(rank), number_)});
    }
    if (place.pid != getpid() && process_has_ended(place.pid) && is_behind()) {
      const std::string why = fmt::format("{} has died before window {}", it.other(rank), number_);
      if (options.tells_of_dead_ranks) return give_up({ncclRemoteError, why});
      if (waited < int64_t{1000} * Machine::get().options().seconds_to_end) return false;
      report_host_fault(Fault::kNoProgress, fmt::format("ncclCommWindowRegister waits without an end: {}", why), true);
      return end_window({ncclUnhandledCudaError, why});
    }
    if (waited < options.milliseconds_to_arrive) return false;
    return give_up(
        {ncclSystemError, fmt::format("after {} ms {} has not registered window {}", waited, it.other(rank), number_)});
  }

  /// Since not all will come. What is known to be wrong with those that have come matters more.
  bool give_up(const Verdict& verdict) {
    const Verdict difference = communicator().different_windows(number_);
    if (difference.good()) return end_window(verdict);
    report_host_fault(Fault::kRankMismatch, difference.why, false);
    return end_window({difference.code, fmt::format("{}; {}", difference.why, verdict.why)});
  }

  Registration registration_;
  WindowFacts facts_;
  ncclWindow_t* variable_;
  int64_t number_ = -1;
  Clock::time_point begin_;
};

Verdict check_memory(const Communicator& communicator, const void* begin, size_t bytes) {
  std::string why;
  if (bytes == 0) return {ncclInvalidArgument, "no bytes"};
  if (bytes > kMostBytes) return {ncclInvalidArgument, fmt::format("{} bytes: no memory has so many", bytes)};
  if (!is_device_memory(begin, static_cast<int64_t>(bytes), communicator.device, why)) {
    return {ncclInvalidArgument, fmt::format("buffer {} ({} bytes) is {}", begin, bytes, why)};
  }
  return {};
}

Verdict register_window(const Call& call, const std::shared_ptr<Communicator>& communicator, void* begin, size_t bytes,
                        ncclWindow_t* variable, int flags) {
  if (variable == nullptr) return {ncclInvalidArgument, "no place for the window was given"};
  *variable = nullptr;
  if (flags != NCCL_WIN_DEFAULT && flags != NCCL_WIN_COLL_SYMMETRIC) {
    return {ncclInvalidArgument, fmt::format("there are no window flags {}", flags)};
  }
  if (reinterpret_cast<uintptr_t>(begin) % NCCL_WIN_REQUIRED_ALIGNMENT != 0) {
    return {ncclInvalidArgument, fmt::format("buffer {} is no multiple of NCCL_WIN_REQUIRED_ALIGNMENT ({})", begin,
                                             NCCL_WIN_REQUIRED_ALIGNMENT)};
  }
  if (Verdict verdict = check_memory(*communicator, begin, bytes); !verdict.good()) return verdict;
  Memory memory;
  find_memory(begin, memory);
  if (flags == NCCL_WIN_COLL_SYMMETRIC && library().memory.count(memory.begin) == 0) {
    return {ncclInvalidArgument, fmt::format("buffer {} for a symmetric window is not from ncclMemAlloc", begin)};
  }
  if (Group* const group = open_group(); group != nullptr && !group->works.empty()) {
    return {ncclInvalidUsage, "collectives and registrations in one group"};
  }
  if (Verdict verdict = check_group(communicator->blocking); !verdict.good()) return verdict;
  Registration registration{.begin = static_cast<const std::byte*>(begin),
                            .bytes = static_cast<int64_t>(bytes),
                            .window = true,
                            .symmetric = flags == NCCL_WIN_COLL_SYMMETRIC};
  return run_task(call, std::make_shared<RegisterWindow>(communicator, std::move(registration), flags, variable));
}

Verdict deregister(Communicator& communicator, const void* handle, bool window) {
  const auto found = communicator.registrations.find(handle);
  const char* const what = window ? "window" : "registered buffer";
  if (found == communicator.registrations.end() || found->second.window != window) {
    return {ncclInvalidArgument, fmt::format("{} is no {} of this communicator", handle, what)};
  }
  if (streams_hold(communicator.handle) || graphs_hold(communicator.handle)) {
    // Which of the works use it is not asked: a collective's buffers may lie anywhere in it.
    const std::string why = fmt::format("{} {} is deregistered while operations of {} are in streams or graphs", what,
                                        handle, communicator.description());
    report_host_fault(Fault::kLifetime, why, false);
    return {ncclInvalidUsage, why};
  }
  communicator.registrations.erase(found);
  return {};
}

}  // namespace
}  // namespace shardscope::emulation::nccl

using namespace shardscope::emulation;        // NOLINT(google-build-using-namespace): these have C names
using namespace shardscope::emulation::nccl;  // NOLINT(google-build-using-namespace)

int64_t shardscope::emulation::symmetric_collectives(ncclComm_t communicator) {
  const Locked locked;
  std::shared_ptr<Communicator> it;
  return find(communicator, it).good() ? it->symmetric_collectives : -1;
}

extern "C" {

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  const Call call("ncclMemAlloc");
  if (call.fails()) return ordered_answer(call);
  if (memory == nullptr) return answer(call, {ncclInvalidArgument, "no place for the address was given"});
  *memory = nullptr;
  if (bytes == 0) return answer(call, {ncclInvalidArgument, "no bytes"});
  std::byte* const begin =
      bytes > kMostBytes ? nullptr : allocate_for_library(current_device(), static_cast<int64_t>(bytes), kGranularity);
  if (begin == nullptr) {
    return answer(call,
                  {ncclUnhandledCudaError, fmt::format("no {} bytes are left on device {}", bytes, current_device())});
  }
  library().memory.emplace(begin, static_cast<int64_t>(bytes));
  *memory = begin;
  return ncclSuccess;
}

ncclResult_t ncclMemFree(void* memory) {
  const Call call("ncclMemFree");
  if (call.fails()) return ordered_answer(call);
  if (memory == nullptr) return ncclSuccess;
  const auto found = library().memory.find(memory);
  if (found == library().memory.end()) {
    return answer(call, {ncclInvalidArgument, fmt::format("{} is none that ncclMemAlloc gave and that lives", memory)});
  }
  const std::string registered = registration_within(memory, found->second);
  library().memory.erase(found);
  if (!free_for_library(call, memory)) {
    return answer(call, {ncclInvalidArgument, fmt::format("{} does not live any more", memory)});
  }
  if (!registered.empty()) return answer(call, {ncclInvalidUsage, fmt::format("{}, {}", memory, registered)});
  return ncclSuccess;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t communicator, void* buffer, size_t bytes, ncclWindow_t* window,
                                    int flags) {
  const Call call("ncclCommWindowRegister");
  if (call.fails()) return ordered_answer(call);
  std::shared_ptr<Communicator> it;
  Verdict verdict = find_ready(communicator, it);
  if (verdict.good()) verdict = register_window(call, it, buffer, bytes, window, flags);
  if (Group* const group = open_group(); group != nullptr && group->first_error.good()) group->first_error = verdict;
  return answer(call, verdict, it.get());
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t communicator, ncclWindow_t window) {
  const Call call("ncclCommWindowDeregister");
  if (call.fails()) return ordered_answer(call);
  std::shared_ptr<Communicator> it;
  Verdict verdict = find(communicator, it);
  if (verdict.good()) verdict = deregister(*it, window, true);
  return answer(call, verdict, it.get());
}

ncclResult_t ncclCommRegister(const ncclComm_t communicator, void* buffer, size_t bytes, void** handle) {
  const Call call("ncclCommRegister");
  if (call.fails()) return ordered_answer(call);
  std::shared_ptr<Communicator> it;
  Verdict verdict = find_ready(communicator, it);
  if (verdict.good() && handle == nullptr) verdict = {ncclInvalidArgument, "no place for the handle was given"};
  if (verdict.good()) verdict = check_memory(*it, buffer, bytes);
  if (!verdict.good()) return answer(call, verdict, it.get());
  *handle = library().new_handle();
  Registration registration{.begin = static_cast<const std::byte*>(buffer), .bytes = static_cast<int64_t>(bytes)};
  registration.held =
      std::make_unique<Held>(fmt::format("NCCL registration of {} bytes, {}", bytes, it->description()));
  it->registrations.emplace(*handle, std::move(registration));
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t communicator, void* handle) {
  const Call call("ncclCommDeregister");
  if (call.fails()) return ordered_answer(call);
  std::shared_ptr<Communicator> it;
  Verdict verdict = find(communicator, it);
  if (verdict.good()) verdict = deregister(*it, handle, false);
  return answer(call, verdict, it.get());
}

}  // extern "C"
