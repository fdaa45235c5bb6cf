// mat_vec.cpp's kernels for plain weights: fp32, fp16, bf16. A lane takes 16 bytes: 4 or 8 columns.
#include "kernels/cuda/mat_vec_kernel.cuh"

namespace shardscope::cuda {
namespace {

template <class Element>
struct PlainRows {
  static constexpr int kColumns = kElementsOf16Bytes<Element>;
  static constexpr int kParts = kColumns / 4;
  static constexpr int kMostBatchOfThree = sizeof(Element) == 4 ? 1 : 2;
  static constexpr bool kBlocks = false;
  static constexpr bool kSumsOfX = false;
  template <int kRows>
  struct Scales {};
  template <int kRows>
  struct ScaleReader {
    __device__ ScaleReader(const Product&, int64_t, int64_t) {}
    __device__ __forceinline__ void load(const Product&, unsigned, Scales<kRows>&) const {}
    __device__ __forceinline__ void advance(int) {}
  };
  static __device__ __forceinline__ void decode(const uint4& codes, int part, float (&weights)[4]) {
    float all[kColumns];
    unpack16<Element>(codes, all);
#pragma unroll
    for (int i = 0; i < 4; ++i) weights[i] = all[4 * part + i];
  }
};

}  // namespace

cudaError_t mat_vec_plain(DType weight_dtype, const Product& product, const ProductLaunch& launch) {
  if (weight_dtype == DType::kF32) return launch_for_batch<PlainRows<float>>(product, launch);
  if (weight_dtype == DType::kF16) return launch_for_batch<PlainRows<__half>>(product, launch);
  return launch_for_batch<PlainRows<__nv_bfloat16>>(product, launch);
}

}  // namespace shardscope::cuda
