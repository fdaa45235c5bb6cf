// One way to sum activations over the devices of a group's ranks: NCCL, or our own kernels on peers' memory. Between
// DeviceCommunicator, which chooses among them, and those.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/cuda/candidates.hpp"
#include "kernels/cuda/operation_stamps.hpp"
#include "kernels/cuda/peer_rank.hpp"

namespace shardscope::parallel {

/// Where sums are enqueued: the stream that computes.
struct DeviceStream {
  std::function<cudaStream_t()> lend;  // for work that is not ours (NCCL's, copies): asked for each
  std::function<cudaStream_t()> own;   // for our own kernels; empty: as lend
  std::function<bool()> programmatic;  // whether our next kernel may be launched so; empty: never
  // Where the next call notes when it ran, as part of an operation; null, or empty: nowhere.
  std::function<cuda::OperationStamps*()> stamps;
  int device = 0;  // its; current in this thread

  cudaStream_t for_kernels() const { return own ? own() : lend(); }
  bool overlaps() const { return programmatic && programmatic(); }
  cuda::OperationStamps* stamps_of_operation() const { return stamps ? stamps() : nullptr; }
};

class DeviceSum {
 public:
  virtual ~DeviceSum() = default;
  virtual std::string_view name() const = 0;  // as --allreduce has it
  virtual int64_t most_bytes() const = 0;     // of a message

  // Calls: the same on all ranks in the same order; enqueued on the stream, which may be captured; do not wait for
  // other ranks, but where NCCL connects to them first. Throw SystemError.

  /// The sum over the ranks, in place, added in fp32 or, by NCCL, as it does.
  virtual void all_reduce(void* data, int64_t count, kernels::DType dtype) = 0;

  /// input.sum = input.residual + the sum over the ranks of input.addend, and input.normed its norm, by one kernel.
  /// False if this way has none for that shape: then nothing was enqueued.
  virtual bool all_reduce_norm(const kernels::NormedInput&) { return false; }

  /// best [rows] in device memory: of each rank's best of a row the best of all. False: as above.
  virtual bool exchange_candidates(cuda::CandidateOut*, int64_t) { return false; }

  /// Memory for activations that will be summed, where it has to be of a kind of its own; else null. The same calls on
  /// all ranks. Has to end before this.
  virtual std::unique_ptr<kernels::ActivationBuffer> make_summed(int64_t, int64_t, kernels::DType) { return nullptr; }

  /// When the latest calls ran, oldest first; the stream must have done them. Empty: nothing keeps that.
  virtual std::vector<cuda::CallTimes> times() { return {}; }

  /// Throws PeerFailure or SystemError if a sum cannot end any more, or has ended without a result; BugError where
  /// ranks made different calls and our kernels found it.
  virtual void check() = 0;
  /// Ends what is in the stream without a result.
  virtual void abort() noexcept = 0;
};

}  // namespace shardscope::parallel
