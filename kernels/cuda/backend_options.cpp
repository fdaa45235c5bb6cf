#include "kernels/cuda/backend_options.hpp"

namespace shardscope::cuda {

int64_t bucket_of(int64_t tokens) {
  constexpr int64_t kFine = 8;     // up to here as the matrix-vector kernels have them
  constexpr int64_t kCoarse = 64;  // above: multiples
  if (tokens <= 0) return 0;
  if (tokens > kCoarse) return (tokens + kCoarse - 1) / kCoarse * kCoarse;
  if (tokens > kFine) return (tokens + kFine - 1) / kFine * kFine;
  int64_t bucket = 1;
  while (bucket < tokens) bucket *= 2;
  return bucket;
}

int64_t reserved_bytes(const BackendOptions& options) {
  // Scratch and as much for cuBLASLt's workspace at most; workspaces of attention and candidates; the libraries' own
  // code and buffers, for which half a GiB is ample with what a context takes (measured by nobody here).
  constexpr int64_t kLibraries = int64_t{512} << 20;
  return 2 * options.scratch_bytes + kLibraries;
}

}  // namespace shardscope::cuda
