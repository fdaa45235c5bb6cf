// What a test asks of the NCCL stand-in beside NCCL's own functions. The stand-in is stricter than NCCL where that
// shows slips: all ranks compare what they call; one thread that drives several ranks needs groups; a communicator with
// an error can only be aborted; graphs and windows go before their communicator; buffers are device memory (not
// pinned); ncclInProgress has to be answered by ncclCommGetAsyncError before anything else; the null stream is for
// calls outside groups; memory that overlaps other than in place is refused. Operations of no elements wait for all
// ranks, too.
#pragma once

#include <nccl.h>

#include <cstdint>

namespace shardscope::emulation {

/// How many of the communicator's operations had both buffers in symmetric windows, at the same offsets of the same
/// windows on every rank: those for which NCCL can use its kernels for symmetric memory. -1: no such communicator.
int64_t symmetric_collectives(ncclComm_t communicator);

}  // namespace shardscope::emulation
