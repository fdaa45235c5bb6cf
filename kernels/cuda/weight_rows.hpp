// Rows of a stored weight matrix as rows of activations: what the lookup of embeddings (begin_step.hpp) and the
// conversion of weights (rows.hpp) have in common. Host side: arguments and launch.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/device_matrix.hpp"
#include "kernels/cuda/operation_stamps.hpp"
#include "kernels/dtype.hpp"

namespace shardscope::cuda {

struct WeightRows {
  DeviceMatrix matrix;
  const int32_t* ids = nullptr;  // [rows] or null
  int64_t first = 0;             // out row i = row ids[i] - first, or row first + i where there are no ids
  int64_t rows = 0;
  kernels::DType dtype = kernels::DType::kF32;  // of out: fp32, fp16 or bf16
  void* out = nullptr;                          // [rows][matrix.columns], out_stride elements apart
  int64_t out_stride = 0;
  OperationStamps* stamps = nullptr;  // where it notes when it ran, or null
  bool programmatic = false;          // as Launch::programmatic
};

/// Rounded once, to nearest even; zeros where there is no such row. Enqueued on `stream`, does not wait.
/// cudaErrorInvalidValue for other dtypes, block formats with less than whole blocks, a stride below the columns, or
/// more than 2^31 blocks of work. Nothing to do: no rows or no columns.
[[nodiscard]] cudaError_t weight_rows(const WeightRows& arguments, cudaStream_t stream);

}  // namespace shardscope::cuda
