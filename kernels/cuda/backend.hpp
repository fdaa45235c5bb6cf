// The CUDA backend: kernels::Backend over the kernels of this folder. One device, one stream, one host thread.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <memory>

#include "kernels/backend.hpp"
#include "kernels/cuda/backend_options.hpp"
#include "kernels/cuda/candidates.hpp"
#include "kernels/cuda/operation_stamps.hpp"

namespace shardscope::cuda {

/// best [rows] in device memory.
using CandidatesExchange = std::function<bool(CandidateOut* best, int64_t rows)>;

/// What communicators need of the backend beside kernels::Backend.
class CudaBackend : public kernels::Backend {
 public:
  /// The stream on which the operations are enqueued, for work between them; also while a step is recorded. lend: for
  /// work that is not ours. stream: for our own kernels, each of which asks first whether it may be launched
  /// programmatically (Launch::programmatic).
  virtual cudaStream_t lend_stream() = 0;
  virtual cudaStream_t stream() = 0;
  virtual bool programmatic() = 0;
  /// Where kernels note when the open operation of the step ran; null: nowhere, since nothing is to be noted.
  virtual OperationStamps* stamps() = 0;
  virtual int device() const = 0;
  /// check: called now and then while the backend waits for its device; throws what should end the wait. abort: called
  /// before an exception of this rank's own leaves a step, so that nothing on the device waits for others.
  virtual void watch(std::function<void()> check, std::function<void()> abort) = 0;
  virtual void forget_watches() = 0;
  /// exchange: enqueues the exchange of each row's best candidate among the ranks, in place, behind the kernel that
  /// finds this rank's; false: it does not, for so many rows. Empty: nobody does.
  virtual void exchange_candidates_by(CandidatesExchange exchange) = 0;
};

/// Throws SystemError if the device cannot be used.
std::unique_ptr<CudaBackend> make_backend(const BackendOptions& options);

}  // namespace shardscope::cuda
