#include "tests/emulation/fakes/cudart/runtime.hpp"

#include "tests/emulation/emulation.hpp"
#include "tests/emulation/fakes/cudart/ipc.hpp"
#include "tests/emulation/fakes/cudart/launches.hpp"
#include "tests/emulation/fakes/lock.hpp"
#include "tests/emulation/watchdog.hpp"

namespace shardscope::emulation {
namespace {

cudaError_t sticky_error = cudaSuccess;

/// Of a host thread. `restart` makes all of them begin anew.
struct ThreadState {
  int64_t generation = 0;
  int device = 0;
  cudaError_t last = cudaSuccess;
};

int64_t generation = 0;

ThreadState& this_thread() {
  static thread_local ThreadState state;
  if (state.generation != generation) state = {.generation = generation};
  return state;
}

cudaError_t error_of(Fault fault) {
  switch (fault) {
    case Fault::kOutOfBounds:
    case Fault::kUseAfterFree:
    case Fault::kHostMemory:
    case Fault::kPeerAccess:
    case Fault::kLifetime:
      return cudaErrorIllegalAddress;
    case Fault::kMisaligned:
      return cudaErrorMisalignedAddress;
    case Fault::kNoProgress:
      return cudaErrorLaunchTimeout;
    case Fault::kForeignLocal:
    case Fault::kUninitialised:
    case Fault::kSharedRace:
    case Fault::kGlobalRace:
    case Fault::kDivergentBarrier:
    case Fault::kDivergentWarp:
    case Fault::kPendingCopy:
    case Fault::kTrap:
    case Fault::kHostRace:
    case Fault::kRankMismatch:
      return cudaErrorLaunchFailure;
  }
  return cudaErrorUnknown;
}

}  // namespace

void forget_runtime() {
  forget_ipc();  // first: it looks at the memory
  forget_executor();
  forget_handles();
  forget_launches();
  sticky_error = cudaSuccess;
  ++generation;
}

cudaError_t answer(cudaError_t error) {
  if (sticky_error == cudaSuccess && Machine::get().stopped()) sticky_error = error_of(Machine::get().stopped_by());
  if (sticky_error != cudaSuccess) error = sticky_error;
  if (error != cudaSuccess) this_thread().last = error;
  return error;
}

cudaError_t refused(const Call& call, cudaError_t error, std::string_view why) {
  call.refuse(why);
  return answer(error);
}

cudaError_t no_stream(const Call& call) {
  return refused(call, cudaErrorInvalidResourceHandle, "no such stream");
}

cudaError_t failure(const Call& call, cudaError_t fitting) {
  return answer(call.ordered_error() != 0 ? static_cast<cudaError_t>(call.ordered_error()) : fitting);
}

bool failed() {
  return answer(cudaSuccess) != cudaSuccess;
}

int current_device() {
  return this_thread().device;
}

void set_current_device(int device) {
  this_thread().device = device;
}

void drain(const Call& call, int device) {
  const uint64_t last = executor().last_number();
  wake_worker();
  call.wait_until([&] { return executor().done_up_to(device, last); });
}

cudaError_t synchronise(const Call& call, const Stream& stream) {
  const std::vector<Edge> tail = stream.tail;
  wake_worker();
  call.wait_until([&] { return all_done(tail); });
  if (failed()) return answer(cudaSuccess);
  for (const Edge& edge : tail) executor().host_learns(*edge.before);
  return answer(cudaSuccess);
}

bool go_on_while_polling(const std::function<bool()>& done) {
  Machine& machine = Machine::get();
  if (machine.stopped() || done()) return done();
  if (machine.options().policy == Policy::kWorker) {
    wake_worker();
    pause_for_others();
    return done();
  }
  const Watchdog watchdog(machine.options().seconds_to_end);
  const Opened opened;
  // Opening and closing devices' memory costs as much as hundreds of steps.
  constexpr int64_t kStepsOfPoll = 256;
  const int64_t most = machine.seeded() ? machine.random_below(2 * kStepsOfPoll) : kStepsOfPoll;
  Step step = Step::kRan;
  for (int64_t i = 0; i < most && step == Step::kRan && !done(); ++i) step = machine.step(executor(), false);
  if (step == Step::kIdle) pause_for_others();
  return done();
}

Allocation* live_allocation(const void* address, int64_t bytes) {
  DeviceMemory& memory = Machine::get().memory();
  if (!memory.covers(address)) return nullptr;
  Allocation* const found = memory.find(address);
  if (found == nullptr || found->freed) return nullptr;
  return static_cast<const std::byte*>(address) + bytes <= found->begin + found->bytes ? found : nullptr;
}

}  // namespace shardscope::emulation

// ---- errors ---------------------------------------------------------------------------------------------------------

using namespace shardscope::emulation;  // NOLINT(google-build-using-namespace): these have C names

extern "C" {

cudaError_t cudaGetLastError() {
  const Call call("cudaGetLastError");
  if (call.fails()) return failure(call);
  const cudaError_t error = answer(cudaSuccess) != cudaSuccess ? sticky_error : this_thread().last;
  this_thread().last = sticky_error;
  return error;
}
cudaError_t cudaPeekAtLastError() {
  const Call call("cudaPeekAtLastError");
  if (call.fails()) return failure(call);
  return answer(cudaSuccess) != cudaSuccess ? sticky_error : this_thread().last;
}

}  // extern "C"
