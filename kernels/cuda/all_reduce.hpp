// All-reduces of small messages among the GPUs that can address each other's memory: each rank pushes data into its
// peers' inboxes and polls its own. Host side: arguments and launch.
//
// one-shot: every rank gets all ranks' data and adds them itself; one trip, 2 (ranks - 1) times the data sent.
// two-shot: every rank adds one part of the elements for all and sends the sums; two trips, 4 (ranks - 1) / ranks
// times.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/operation_stamps.hpp"
#include "kernels/cuda/peer_rank.hpp"
#include "kernels/dtype.hpp"

namespace shardscope::cuda {

enum class Shots : uint8_t { kOne, kTwo };

struct AllReduce {
  kernels::DType dtype = kernels::DType::kF32;  // fp32, fp16 or bf16
  int64_t count = 0;                            // elements; any, whose bytes the capacity holds
  const void* x = nullptr;                      // [count], aligned to 4 bytes
  void* out = nullptr;                          // [count], aligned to 4 bytes; may be x
  OperationStamps* stamps = nullptr;            // where the call notes when it ran, or null
  bool programmatic = false;                    // as Launch::programmatic
};

/// out = the sum of all ranks' x, added in fp32 in the order of the ranks and rounded once: the same bits on every
/// rank, whichever `shots`. Every rank makes the same calls (function, shots, dtype and count) in the same order, each
/// on one stream, and every kernel between two calls on that stream calls grid_dependency_wait or is launched without
/// `programmatic`. The kernels of all ranks must be able to run at the same time; each takes at most one block a
/// multiprocessor. Enqueued on `stream`, does not wait. If a peer's data does not come, the kernel ends, `out` is
/// undefined and state->failure says which rank it waited for; the same at once where a rank makes another call
/// (kAnotherCall), on all ranks whose call is not that of all others. Then inboxes and states of all ranks have to be
/// cleared together. cudaErrorInvalidValue for arguments that the comments above do not allow. No elements: nothing to
/// do, and no call is counted.
[[nodiscard]] cudaError_t all_reduce(const PeerRank& rank, Shots shots, const AllReduce& arguments,
                                     cudaStream_t stream);

/// Rows of activations that all ranks hold parts of, with the residual's addition and the norm behind the sum.
struct AllReduceNorm {
  kernels::DType dtype = kernels::DType::kF32;  // of all but the weight: fp32, fp16 or bf16
  int64_t rows = 0;
  int64_t columns = 0;      // 1 to all_reduce_norm_columns
  const void* x = nullptr;  // [rows][columns], rows x_stride elements apart; all ranks the same strides
  int64_t x_stride = 0;
  const void* residual = nullptr;  // [rows][columns], the same on all ranks
  int64_t residual_stride = 0;
  const float* weight = nullptr;  // [columns]; may be read before the kernel before has ended
  float epsilon = 0;
  void* sum = nullptr;  // [rows][columns]; may be residual or x
  int64_t sum_stride = 0;
  void* normed = nullptr;  // [rows][columns]; may be x or residual, not sum
  int64_t normed_stride = 0;
  OperationStamps* stamps = nullptr;
  bool programmatic = false;
};

/// The widest rows that all_reduce_norm takes on a device of so many multiprocessors (a row is up to 16 blocks, which
/// have to be resident at once).
int64_t all_reduce_norm_columns(kernels::DType dtype, int multiprocessors);

/// sum = residual + the sum of all ranks' x, added in fp32 and rounded once; normed = sum / sqrt(mean(sum^2) + epsilon)
/// * weight, row by row, the same bits on every rank. Otherwise as all_reduce, of rows * columns elements (what lies
/// between rows is neither sent nor written); one call, one launch. Row starts aligned to 4 bytes; the capacity has to
/// hold rows of whole 4 bytes.
[[nodiscard]] cudaError_t all_reduce_norm(const PeerRank& rank, Shots shots, const AllReduceNorm& arguments,
                                          cudaStream_t stream);

}  // namespace shardscope::cuda
