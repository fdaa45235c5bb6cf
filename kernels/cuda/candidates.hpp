// The largest logits of each row, on the device: what greedy decoding and sampling take from a step, instead of whole
// rows. Host side: arguments and launch.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/operation_stamps.hpp"

namespace shardscope::cuda {

inline constexpr int64_t kMaxCandidates = 64;
inline constexpr int64_t kMaxCandidateRows = 4096;

struct CandidateOut {  // as kernels::Candidate
  float logit;
  int32_t token_id;
};

/// Gumbel noise of one row, for drawing from the whole vocabulary: candidates are ranked by
/// (logit - reference) * inverse_temperature + gumbel(key, token_id), computed in double and rounded to fp32, and that
/// is what `logit` of the result then holds. `reference` is the largest logit of the whole vocabulary, so that a tiny
/// temperature makes nothing infinite.
struct CandidateNoise {
  uint64_t key = 0;
  float inverse_temperature = 0;  // finite; 0: no noise, no scaling in this row
  float reference = 0;
};

struct Candidates {
  const float* logits = nullptr;  // [rows][columns], stride elements apart
  int64_t rows = 0;
  int64_t columns = 0;  // 0: none are filled in
  int64_t stride = 0;
  int32_t first_id = 0;                   // token_id = first_id + column
  int64_t count = 1;                      // candidates a row, 1 to kMaxCandidates
  const CandidateNoise* noise = nullptr;  // [rows] in device memory, or null
  CandidateOut* out = nullptr;            // [rows][count]
  // candidates_workspace_bytes, aligned to 16, filled with zeros once; what a call leaves there serves the next one, of
  // whatever shape. One call at a time.
  void* workspace = nullptr;
  OperationStamps* stamps = nullptr;  // where it notes when it ran, or null
  bool programmatic = false;          // as Launch::programmatic
};

/// Enough for all calls with at most these rows, columns and candidates a row.
int64_t candidates_workspace_bytes(int64_t rows, int64_t columns, int64_t count);

/// out row i: the `count` largest of row i, descending, ties to the smaller id; NaN ranks as +inf (and is given as
/// such); entries beyond `columns` have token_id -1 and logit -inf. Of zeros the sign is lost. Where there is noise,
/// scores are computed in fp64 as by the sampler on the host, rounded to fp32, and ranked as that. One launch; logits
/// are read once, any alignment, better one of 16 bytes. Enqueued on `stream`, does not wait. cudaErrorInvalidValue for
/// a count, rows (at most kMaxCandidateRows), stride or workspace out of range, and ids that do not fit 31 bits.
[[nodiscard]] cudaError_t candidates(const Candidates& arguments, cudaStream_t stream);

}  // namespace shardscope::cuda
