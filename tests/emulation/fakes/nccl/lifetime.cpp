// The end of communicators, orderly or not, and what they say of their state.
#include <fmt/format.h>
#include <unistd.h>

#include "tests/emulation/emulation.hpp"
#include "tests/emulation/fakes/cudart/runtime.hpp"
#include "tests/emulation/fakes/nccl/communicator.hpp"
#include "tests/emulation/machine.hpp"

namespace shardscope::emulation::nccl {
namespace {

/// A fault of the host: something is to go that something else needs.
Verdict too_early(const std::string& why) {
  report_host_fault(Fault::kLifetime, why, false);
  return {ncclInvalidUsage, why};
}

Verdict check_graphs(const Communicator& communicator, const char* what) {
  if (!graphs_hold(communicator.handle)) return {};
  return too_early(
      fmt::format("the communicator, {}, is to be {} while a graph that holds operations of it lives: "
                  "destroy the graph and its executables before",
                  communicator.description(), what));
}

Verdict check_registrations(const Communicator& communicator) {
  if (communicator.registrations.empty()) return {};
  const Registration& first = communicator.registrations.begin()->second;
  return too_early(
      fmt::format("the communicator, {}, is to be destroyed while {} bytes at {} are registered as a {} of "
                  "it: deregister before",
                  communicator.description(), first.bytes, static_cast<const void*>(first.begin),
                  first.window ? "window" : "buffer"));
}

bool in_group(const Communicator& communicator) {
  for (const auto& [thread, group] : library().groups) {
    for (const Group::Enqueued& one : group.works) {
      if (one.communicator.get() == &communicator) return true;
    }
    for (const std::shared_ptr<Task>& task : group.tasks) {
      if (&task->communicator() == &communicator) return true;
    }
  }
  return false;
}

/// Waits until no work of the communicator is in a stream.
Verdict flush(const Call& call, const Communicator& communicator) {
  const auto over = [&] { return !communicator.error.good() || !streams_hold(communicator.handle); };
  if (!over() && !call.wait_until(over)) {
    return {ncclUnhandledCudaError, "its operations cannot end: devices have stopped, or wait for something"};
  }
  if (communicator.error.good()) return {};
  return {communicator.error.code, fmt::format("it has failed and can only be aborted: {}", communicator.error.why)};
}

Verdict finalise(const Call& call, ncclComm_t handle, std::shared_ptr<Communicator>& communicator) {
  if (Verdict verdict = find_ready(handle, communicator); !verdict.good()) return verdict;
  if (Verdict verdict = check_graphs(*communicator, "finalised"); !verdict.good()) return verdict;
  if (in_group(*communicator)) return {ncclInvalidUsage, "a group with operations of it has not ended"};
  communicator->finalised = true;
  if (!communicator->blocking) return {ncclInProgress, ""};
  Verdict verdict = flush(call, *communicator);
  communicator->flushed = verdict.good();
  return verdict;
}

Verdict destroy(const Call& call, ncclComm_t handle, std::shared_ptr<Communicator>& communicator) {
  if (Verdict verdict = find(handle, communicator); !verdict.good()) return verdict;
  if (!communicator->finalised) {
    if (Verdict verdict = find_ready(handle, communicator); !verdict.good()) return verdict;
  } else if (!communicator->flushed) {
    return {ncclInvalidUsage, "it is still being finalised: ask ncclCommGetAsyncError until it says ncclSuccess"};
  }
  if (Verdict verdict = check_graphs(*communicator, "destroyed"); !verdict.good()) return verdict;
  if (Verdict verdict = check_registrations(*communicator); !verdict.good()) return verdict;
  if (in_group(*communicator)) return {ncclInvalidUsage, "a group with operations of it has not ended"};
  if (Verdict verdict = flush(call, *communicator); !verdict.good()) return verdict;
  communicator->own_place().presence = Presence::kLeft;
  library().communicators.erase(handle);
  return {};
}

Verdict abort(ncclComm_t handle, std::shared_ptr<Communicator>& communicator) {
  if (Verdict verdict = find(handle, communicator); !verdict.good()) return verdict;
  if (Verdict verdict = check_graphs(*communicator, "aborted"); !verdict.good()) return verdict;
  // Its works in streams see that and do nothing more.
  communicator->aborted = true;
  communicator->own_place().presence = Presence::kAborted;
  communicator->tasks.clear();
  communicator->registrations.clear();
  communicator->held.reset();
  library().communicators.erase(handle);
  return {};
}

/// What other ranks did, as an error of this one.
void look_at_others(Communicator& communicator) {
  if (communicator.hear_of_difference()) return;
  for (int rank = 0; rank < communicator.ranks; ++rank) {
    const Place& place = communicator.clique.place(rank);
    const Presence presence = place.presence;
    if (rank == communicator.rank) continue;
    if (presence == Presence::kAborted) {
      communicator.fail_without_all(
          {ncclRemoteError, fmt::format("{} has aborted the communicator", communicator.other(rank))});
    } else if (presence == Presence::kThere && place.pid != getpid() &&
               Machine::get().options().nccl.tells_of_dead_ranks && process_has_ended(place.pid) &&
               place.presence == Presence::kThere) {
      communicator.fail_without_all({ncclRemoteError, fmt::format("{} has died", communicator.other(rank))});
    }
  }
}

ncclResult_t state(Communicator& communicator) {
  settle(communicator);
  if (communicator.error.good() && communicator.ready && !communicator.flushed) look_at_others(communicator);
  if (!communicator.error.good()) return communicator.error.code;
  if (!communicator.tasks.empty()) return ncclInProgress;
  if (communicator.answers_in_progress > 0) {
    --communicator.answers_in_progress;
    return ncclInProgress;
  }
  if (communicator.finalised && !communicator.flushed) {
    if (streams_hold(communicator.handle)) return ncclInProgress;
    communicator.flushed = true;
  }
  return ncclSuccess;
}

}  // namespace
}  // namespace shardscope::emulation::nccl

using namespace shardscope::emulation;        // NOLINT(google-build-using-namespace): these have C names
using namespace shardscope::emulation::nccl;  // NOLINT(google-build-using-namespace)

extern "C" {

ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  const Call call("ncclCommFinalize");
  if (call.fails()) return ordered_answer(call);
  std::shared_ptr<Communicator> it;
  const Verdict verdict = finalise(call, communicator, it);
  return answer(call, verdict, it.get());
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  const Call call("ncclCommDestroy");
  if (call.fails()) return ordered_answer(call);
  if (communicator == nullptr) return ncclSuccess;
  std::shared_ptr<Communicator> it;
  const Verdict verdict = destroy(call, communicator, it);
  return answer(call, verdict, it.get());
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  const Call call("ncclCommAbort");
  if (call.fails()) return ordered_answer(call);
  if (communicator == nullptr) return ncclSuccess;
  std::shared_ptr<Communicator> it;
  const Verdict verdict = shardscope::emulation::nccl::abort(communicator, it);
  return answer(call, verdict, it.get());
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* error) {
  const Call call("ncclCommGetAsyncError");
  if (call.fails()) return ordered_answer(call);
  std::shared_ptr<Communicator> it;
  Verdict verdict = find(communicator, it);
  if (verdict.good() && error == nullptr) verdict = {ncclInvalidArgument, "no place for the error was given"};
  if (!verdict.good()) return answer(call, verdict, it.get());
  go_on_while_polling([&] { return !it->error.good(); });
  *error = state(*it);
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    case ncclNumResults:
      break;
  }
  return "unknown result code";
}

/// With a communicator that has failed: why it has. Else why the last call failed that did.
const char* ncclGetLastError(ncclComm_t communicator) {
  const Call call("ncclGetLastError");
  static thread_local std::string text;  // what was given before stays valid until this thread asks again
  std::shared_ptr<Communicator> it;
  const bool failed = find(communicator, it).good() && !it->error.good();
  text = failed ? it->error.why : library().last_error;
  return text.c_str();
}

}  // extern "C"
