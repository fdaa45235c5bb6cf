// One collective operation as work in a stream: all ranks tell what they do, compare it, and move data through the
// clique's slots piece by piece.
#pragma once

#include <nccl.h>

#include <memory>
#include <vector>

#include "tests/emulation/fakes/nccl/communicator.hpp"

namespace shardscope::emulation::nccl {

/// What a host asks for.
struct Request {
  Kind kind{};
  const void* sent = nullptr;
  void* received = nullptr;
  size_t count = 0;
  ncclDataType_t type{};
  ncclRedOp_t reduction = ncclSum;
  int root = 0;
  cudaStream_t stream = nullptr;
};

/// How many blocks of `count` elements a rank gives or gets.
int64_t sent_blocks(Kind kind, int ranks);
int64_t received_blocks(Kind kind, int ranks);

/// All that can be known to be wrong at the call.
Verdict check(const Communicator& communicator, const Request& request);

/// The work, for a request that was checked.
std::shared_ptr<const Work> make_collective(std::shared_ptr<Communicator> communicator, const Request& request);

}  // namespace shardscope::emulation::nccl
