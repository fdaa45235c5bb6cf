// What errors of CUDA and cuBLASLt say to a user.
#include "kernels/cuda/check.hpp"

#include <catch2/catch.hpp>
#include <string>

#include "kernels/base/error.hpp"
#include "kernels/cuda/cublas_check.hpp"

namespace shardscope::cuda {
namespace {

std::string message_of(cudaError_t error, const CallContext& context = {}) {
  try {
    check_cuda(error, "cudaMalloc", context);
  } catch (const SystemError& failure) {
    return failure.what();
  }
  return "";
}

}  // namespace

TEST_CASE("check_cuda: success throws nothing") {
  CHECK(message_of(cudaSuccess).empty());
  CHECK_NOTHROW(check_cublas(CUBLAS_STATUS_SUCCESS, "cublasLtMatmul"));
}

TEST_CASE("check_cuda: says code, name, call, size, device, rank and what to do, in this order") {
  CHECK(message_of(cudaErrorMemoryAllocation, {.detail = "8192 bytes", .device = 2, .rank = 5}) ==
        "CUDA error 2 (cudaErrorMemoryAllocation): cudaMalloc: out of memory, 8192 bytes, device 2 of rank 5, use a "
        "higher --tp, a smaller batch or context, or free the device's memory (nvidia-smi shows who holds it)");
  CHECK(message_of(cudaErrorNotReady) == "CUDA error 600 (cudaErrorNotReady): cudaMalloc: device not ready");
  CHECK(message_of(cudaErrorNotReady, {.rank = 1}) ==
        "CUDA error 600 (cudaErrorNotReady): cudaMalloc: device not ready, rank 1");
  CHECK(message_of(cudaErrorNotReady, {.detail = "[3, 5]", .device = 0}) ==
        "CUDA error 600 (cudaErrorNotReady): cudaMalloc: device not ready, [3, 5], device 0");
}

TEST_CASE("check_cuda: the codes that users meet each have their own advice") {
  struct Row {
    int code;
    const char* words;
  };
  const Row row = GENERATE(values<Row>({{1, "bug of shardscope"},
                                        {2, "--tp"},
                                        {35, "update the NVIDIA driver"},
                                        {46, "exclusive mode"},
                                        {100, "CUDA_VISIBLE_DEVICES"},
                                        {101, "CUDA_VISIBLE_DEVICES"},
                                        {209, "CMAKE_CUDA_ARCHITECTURES"},
                                        {214, "Xid"},
                                        {217, "--allreduce nccl"},
                                        {222, "CMAKE_CUDA_ARCHITECTURES"},
                                        {304, "--ipc=host"},
                                        {700, "compute-sanitizer"},
                                        {702, "display"},
                                        {715, "compute-sanitizer"},
                                        {716, "compute-sanitizer"},
                                        {719, "compute-sanitizer"},
                                        {801, "MIG"},
                                        {802, "nvidia-fabricmanager"},
                                        {803, "reboot"},
                                        {804, "forward compatibility"},
                                        {901, "bug of shardscope"},
                                        {999, "dmesg"}}));
  INFO(row.code);
  CHECK(std::string(advice_for(static_cast<cudaError_t>(row.code))).find(row.words) != std::string::npos);
}

TEST_CASE("check_cublas: says code, name, call, shape, device and what to do") {
  std::string text;
  try {
    check_cublas(CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmul", {.detail = "[7, 64] x [64, 9] bf16", .device = 1});
  } catch (const SystemError& failure) {
    text = failure.what();
  }
  CHECK(text ==
        "cuBLASLt error 15 (CUBLAS_STATUS_NOT_SUPPORTED): cublasLtMatmul, [7, 64] x [64, 9] bf16, device 1, this "
        "cuBLASLt has no such product for that device: use another dtype, or a newer cuBLAS");
  for (const cublasStatus_t status :
       {CUBLAS_STATUS_NOT_INITIALIZED, CUBLAS_STATUS_ALLOC_FAILED, CUBLAS_STATUS_INVALID_VALUE,
        CUBLAS_STATUS_ARCH_MISMATCH, CUBLAS_STATUS_MAPPING_ERROR, CUBLAS_STATUS_EXECUTION_FAILED,
        CUBLAS_STATUS_INTERNAL_ERROR, CUBLAS_STATUS_NOT_SUPPORTED}) {
    CHECK_FALSE(advice_for(status).empty());
  }
}

}  // namespace shardscope::cuda
