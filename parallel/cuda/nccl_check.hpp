// Turns NCCL's results into SystemError that says what to do. NCCL's own sentence tells more than its code.
#pragma once

#include <nccl.h>

#include <string_view>

#include "kernels/cuda/check.hpp"

namespace shardscope::parallel {

/// What to do. last_error: ncclGetLastError's text.
std::string_view nccl_advice(ncclResult_t result, std::string_view last_error);

/// Throws SystemError "NCCL error N (meaning): operation: last_error, detail, device D of rank R, what to do".
[[noreturn]] void throw_nccl_error(ncclResult_t result, std::string_view operation, std::string_view last_error,
                                   const cuda::CallContext& context);

}  // namespace shardscope::parallel
