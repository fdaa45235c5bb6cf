// The stand-in for the CUDA runtime, as far as starting kernels needs it: memory, streams, launches, errors. Compiled
// against the real header, so that a wrong signature does not compile and a function that is missing here does not
// link.
//
// Streams are lazy: what was enqueued runs when the host synchronises or frees memory, streams beside each other, in
// the order in which they were made or, with a seed, in a random one. The null stream is an ordinary stream of its
// device, which no other waits for. A report of the checker becomes a sticky error, as a fault on a GPU does.
#pragma once

namespace shardscope::emulation {

/// Forgets streams, what waits in them, the current device and all errors.
void forget_streams();

}  // namespace shardscope::emulation
