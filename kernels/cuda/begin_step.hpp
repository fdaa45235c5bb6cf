// What opens a step: looking up the tokens' embeddings and computing the rotary angles of their positions, once for all
// layers. Host side: arguments and launch.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/device_matrix.hpp"
#include "kernels/cuda/operation_stamps.hpp"
#include "kernels/dtype.hpp"

namespace shardscope::cuda {

struct Embed {
  DeviceMatrix table;  // this rank's rows of the embedding, any dtype of DeviceMatrix
  int64_t first_id = 0;
  int64_t tokens = 0;
  const int32_t* ids = nullptr;                 // [tokens]
  kernels::DType dtype = kernels::DType::kF32;  // of out: fp32, fp16 or bf16
  void* out = nullptr;                          // [tokens][table.columns], out_stride elements apart
  int64_t out_stride = 0;
  OperationStamps* stamps = nullptr;  // where it notes when it ran, or null
  bool programmatic = false;          // as Launch::programmatic
};

/// out row i = row ids[i] - first_id of the table, rounded once; zeros where that is not a row of it. Any out and
/// stride, better multiples of 16 bytes. Enqueued on `stream`, does not wait. cudaErrorInvalidValue for other dtypes,
/// alignments or strides. No tokens: nothing to do.
[[nodiscard]] cudaError_t embed(const Embed& arguments, cudaStream_t stream);

struct RotaryAngles {
  int64_t tokens = 0;
  int64_t pairs = 0;                           // rotary_dims / 2
  const int32_t* positions = nullptr;          // [tokens]; below 0 (padding): as 0
  const float* inverse_frequencies = nullptr;  // [pairs]
  float scale = 1;                             // multiplies cosine and sine
  float2* out = nullptr;                       // [tokens][pairs]
  bool programmatic = false;                   // as Launch::programmatic
};

/// out = scale * (cos a, sin a) of a = position * inverse_frequency, the product in fp32 as in the models' training
/// code, its cosine and sine to within 2 ulp for |a| up to 2^22 (argument reduced in fp64). No local memory. Enqueued
/// on `stream`, does not wait. cudaErrorInvalidValue for negative sizes, or 2^31 pairs and more in all.
[[nodiscard]] cudaError_t rotary_angles(const RotaryAngles& arguments, cudaStream_t stream);

/// The compute capability, 10 * major + minor, that the kernels which run on the current device were compiled for: less
/// than the device's where the driver makes its code of older PTX.
[[nodiscard]] cudaError_t compiled_for(int& capability);

}  // namespace shardscope::cuda
