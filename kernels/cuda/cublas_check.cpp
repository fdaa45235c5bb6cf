// What cuBLASLt's status codes tell a user. Meanings: cuBLAS, "cublasStatus_t".
#include "kernels/cuda/cublas_check.hpp"

#include <fmt/format.h>

#include "kernels/base/error.hpp"

namespace shardscope::cuda {

std::string_view advice_for(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "cuBLASLt could not start on the device: see whether its driver is new enough and memory is free "
             "(nvidia-smi)";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "use a higher --tp, a smaller batch or context, or free the device's memory (nvidia-smi shows who holds "
             "it)";
    case CUBLAS_STATUS_ARCH_MISMATCH:
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "this cuBLASLt has no such product for that device: use another dtype, or a newer cuBLAS";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "a kernel failed, maybe one that was started before: see Xid lines in dmesg; compute-sanitizer finds "
             "which";
    case CUBLAS_STATUS_INVALID_VALUE:
    case CUBLAS_STATUS_MAPPING_ERROR:
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "this looks like a bug of shardscope or of cuBLASLt: please report it with the command line and "
             "CUBLASLT_LOG_LEVEL=5's output";
    case CUBLAS_STATUS_LICENSE_ERROR:
    case CUBLAS_STATUS_SUCCESS:
      break;
  }
  return "";
}

void throw_cublas_error(cublasStatus_t status, std::string_view operation, const CallContext& context) {
  std::string where = fmt::format("{}", context.detail);
  const std::string place = place_of(context);
  if (!where.empty() && !place.empty()) where += ", ";
  where += place;
  throw SystemError(
      fmt::format("cuBLASLt error {} ({}): {}", static_cast<int>(status), cublasLtGetStatusName(status), operation),
      where, advice_for(status));
}

}  // namespace shardscope::cuda
