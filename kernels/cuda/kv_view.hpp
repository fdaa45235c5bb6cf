// One layer of a KV cache in device memory: a view, which owns nothing, and what its users ask of it.
#pragma once

#include <cstdint>

#include "kernels/dtype.hpp"

namespace shardscope::cuda {

/// keys and values: [slot][kv_head][position][head_dim], with these strides in elements for both, all multiples of 16
/// bytes; both aligned to 16 bytes.
struct KvView {
  kernels::DType dtype = kernels::DType::kF16;  // fp32, fp16 or bf16
  void* keys = nullptr;
  void* values = nullptr;
  int64_t slot_stride = 0;
  int64_t head_stride = 0;
  int64_t position_stride = 0;
};

inline bool plain_float(kernels::DType dtype) {
  return dtype == kernels::DType::kF32 || dtype == kernels::DType::kF16 || dtype == kernels::DType::kBF16;
}

/// Of one element of a type that is plain_float.
inline int64_t bytes_of(kernels::DType dtype) {
  return dtype == kernels::DType::kF32 ? 4 : 2;
}

inline bool aligned16(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

/// Whether type, strides and alignments are as the comment above says, for heads of that many dims.
inline bool well_formed(const KvView& kv, int64_t head_dim) {
  const auto whole = [&](int64_t stride) { return stride >= 0 && stride * bytes_of(kv.dtype) % 16 == 0; };
  return plain_float(kv.dtype) && aligned16(kv.keys) && aligned16(kv.values) && whole(kv.slot_stride) &&
         whole(kv.head_stride) && whole(kv.position_stride) && kv.position_stride >= head_dim;
}

}  // namespace shardscope::cuda
