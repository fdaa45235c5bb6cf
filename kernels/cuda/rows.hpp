// Small operations on rows of activations that passes over prompts need beside products and attention: gate, bias,
// picking rows; and turning stored weights into rows of activations' dtype. Host side: arguments and launch.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/device_matrix.hpp"
#include "kernels/dtype.hpp"

namespace shardscope::cuda {

/// [rows][columns] of dtype (fp32, fp16 or bf16) in device memory, rows `stride` elements apart. A view.
struct Rows {
  kernels::DType dtype = kernels::DType::kF32;
  void* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;
};

// All are enqueued on `stream` and do not wait; arguments are in device memory; any pointers and strides, better
// multiples of 16 bytes. cudaErrorInvalidValue for other dtypes, sizes that do not fit together, strides below the
// columns. No rows or no columns: nothing to do.

/// out [rows][f] = silu(gate_up [rows][0 .. f)) * gate_up [rows][f .. 2f), in fp32, rounded once. Same dtype.
[[nodiscard]] cudaError_t silu_gate(const Rows& gate_up, const Rows& out, cudaStream_t stream);

/// x += bias [columns], in fp32, rounded once.
[[nodiscard]] cudaError_t add_bias(const Rows& x, const float* bias, cudaStream_t stream);

/// out row i = x row rows[i]; rows [out.rows], each a row of x (not checked). Same dtype.
[[nodiscard]] cudaError_t select_rows(const Rows& x, const int32_t* rows, const Rows& out, cudaStream_t stream);

/// out row i = row first_row + i of the matrix, out.rows of them, rounded to out's dtype.
[[nodiscard]] cudaError_t dequantise(const DeviceMatrix& matrix, int64_t first_row, const Rows& out,
                                     cudaStream_t stream);

/// What read_bytes reads: rows of row_bytes, stride_bytes apart; all multiples of 16, as is the address.
struct ReadBytes {
  const void* data = nullptr;
  int64_t rows = 1;
  int64_t row_bytes = 0;
  int64_t stride_bytes = 0;
};

/// Reads the bytes once, with all multiprocessors, and adds the xor of all 8-byte words to *checksum by atomicXor, so
/// that nothing is optimised away.
[[nodiscard]] cudaError_t read_bytes(const ReadBytes& arguments, unsigned long long* checksum, cudaStream_t stream);

}  // namespace shardscope::cuda
