// What the stand-in for the CUDA runtime keeps beside streams and memory, for its own functions. Compiled against the
// real header, so that a wrong signature does not compile and a function that is missing here does not link.
//
// Streams are lazy: what was enqueued runs when the host waits or asks, streams beside each other, in the order of the
// calls or, with a seed, in a random one; or, with Policy::kWorker, at some time on a thread of its own. A report of
// the checker becomes a sticky error, as a fault on a GPU does.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string_view>

#include "tests/emulation/fakes/call.hpp"
#include "tests/emulation/fakes/cudart/streams.hpp"

namespace shardscope::emulation {

/// Forgets streams, what waits in them, the current device and all errors.
void forget_runtime();
/// Forgets counts, refusals, and what libraries have.
void forget_calls();

/// The error that the function returns: `error`, or that of a fault which has ended the machine. Kept for
/// cudaGetLastError.
cudaError_t answer(cudaError_t error);
/// The same, and says why.
cudaError_t refused(const Call& call, cudaError_t error, std::string_view why);
cudaError_t no_stream(const Call& call);
/// What a call that is to fail returns: `fitting` if no error was ordered.
cudaError_t failure(const Call& call, cudaError_t fitting = cudaErrorUnknown);
/// True once a fault has ended the machine.
bool failed();

void set_current_device(int device);

/// Gives `value` to the caller's variable.
template <class T>
cudaError_t give(const Call& call, T* variable, T value) {
  if (variable == nullptr) return refused(call, cudaErrorInvalidValue, "nowhere to put the answer: a null pointer");
  *variable = value;
  return answer(cudaSuccess);
}

/// Waits until all that streams of that device hold now is done; kPinned: of all devices.
void drain(const Call& call, int device);
/// Waits for what the stream holds. The host then knows what it did.
cudaError_t synchronise(const Call& call, const Stream& stream);
/// Lets devices go on for a moment, but not beyond what the host asks for. Returns done().
bool go_on_while_polling(const std::function<bool()>& done);

/// The allocation is about to be freed: reports it if somebody still needs it.
void report_needed(const Allocation& allocation);

/// The allocation that holds the whole range and lives, or nullptr.
Allocation* live_allocation(const void* address, int64_t bytes);

}  // namespace shardscope::emulation
