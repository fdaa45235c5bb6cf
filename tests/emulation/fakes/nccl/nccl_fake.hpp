// What a test asks of the NCCL stand-in beside NCCL's own functions. The stand-in is stricter than NCCL where that
// shows slips: all ranks compare what they call; one thread that drives several ranks needs groups; a communicator with
// an error can only be aborted; graphs and windows go before their communicator; buffers are device memory (not
// pinned); ncclInProgress has to be answered by ncclCommGetAsyncError before anything else; the null stream is for
// calls outside groups; memory that overlaps other than in place is refused. Operations of no elements wait for all
// ranks, too. Besides: at most 16 ranks; no sums of fp8; ncclCommInitAll only outside groups; a group has either
// collectives or initialisations and windows; symmetric windows only in memory of ncclMemAlloc; a thread that drove a
// rank may drive another one outside groups only when the first one's operations are done and no graph holds any;
// after ncclCommFinalize, ncclCommCount and the like are refused, and so is an abort while a graph with operations
// lives. Where NCCL documents nothing: if one initialisation of a group fails, those that were complete stay, and have
// to be destroyed or aborted; what was aborted before the end of its group is left out.
#pragma once

#include <nccl.h>

#include <cstdint>

namespace shardscope::emulation {

/// How many of the communicator's operations had both buffers in symmetric windows on every rank: those for which NCCL
/// can use its kernels for symmetric memory. (Different offsets there are an error. In place, the offsets of a rank's
/// own block differ as they have to.) -1: no such communicator.
int64_t symmetric_collectives(ncclComm_t communicator);

}  // namespace shardscope::emulation
