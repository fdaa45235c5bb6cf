// A weight matrix in device memory, as products, lookups and conversions read it. A view; owns nothing.
#pragma once

#include <cstdint>

#include "kernels/dtype.hpp"

namespace shardscope::cuda {

struct DeviceMatrix {
  kernels::DType dtype = kernels::DType::kBF16;
  int64_t rows = 0;
  int64_t columns = 0;  // block formats: a multiple of 32
  // Plain types: [rows], row_bytes apart, a multiple of 16; elements beyond the columns up to the next multiple of 16
  // bytes are read too and must be zero. Block formats: the plane of codes (block_planes.hpp).
  const void* values = nullptr;  // aligned to 16 bytes
  int64_t row_bytes = 0;         // plain types only
  const void* scales = nullptr;  // block formats only: the plane of scales, aligned to those of one block
};

}  // namespace shardscope::cuda
