// The table of parallel/cuda_library.hpp, filled.
#pragma once

#include "parallel/cuda_library.hpp"

namespace shardscope::parallel {

CudaLibrary make_cuda_library();

}  // namespace shardscope::parallel
