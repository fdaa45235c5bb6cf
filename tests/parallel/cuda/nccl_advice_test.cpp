// What NCCL's errors say to a user.
#include <catch2/catch.hpp>
#include <string>

#include "kernels/base/error.hpp"
#include "parallel/cuda/nccl_check.hpp"

namespace shardscope::parallel {

TEST_CASE("nccl_advice: NCCL's own words decide, else its code") {
  struct Row {
    ncclResult_t result;
    const char* last_error;
    const char* words;
  };
  // Words of NCCL 2.28, which quotes those of the system and of CUDA.
  const Row rows[] = {
      {ncclInvalidUsage, "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000", "GPU of its own"},
      {ncclInvalidUsage, "Mismatched NCCL version detected : rank 0 version 22809 rank 1 version 22703", "libnccl"},
      {ncclSystemError, "Error while creating shared memory segment /dev/shm/nccl-xyz (size 9637888)", "--shm-size"},
      {ncclSystemError, "No space left on device", "/dev/shm"},
      {ncclSystemError, "Bootstrap : no socket interface found", "NCCL_SOCKET_IFNAME"},
      {ncclSystemError, "Call to ibv_reg_mr failed with error Cannot allocate memory", "memlock"},
      {ncclUnhandledCudaError, "Cuda failure 2 'out of memory'", "NCCL_BUFFSIZE"},
      {ncclUnhandledCudaError, "CUDA driver version is insufficient for CUDA runtime version", "update the driver"},
      {ncclUnhandledCudaError, "Cuda failure 'invalid argument'", "NCCL_DEBUG=INFO"},
      {ncclUnhandledCudaError, "", "NCCL_DEBUG=INFO"},
      {ncclSystemError, "", "NCCL_DEBUG=INFO"},
      {ncclInternalError, "", "NCCL_DEBUG=INFO"},
      {ncclInvalidArgument, "", "bug of shardscope"},
      {ncclInvalidUsage, "", "bug of shardscope"},
      {ncclRemoteError, "", "that rank's own words"},
  };
  for (const Row& row : rows) {
    INFO(row.result << " " << row.last_error);
    CHECK(std::string(nccl_advice(row.result, row.last_error)).find(row.words) != std::string::npos);
  }
}

TEST_CASE("throw_nccl_error: code, meaning, call, NCCL's words, size, device, rank, what to do") {
  CHECK_THROWS_WITH(
      throw_nccl_error(ncclInternalError, "ncclAllReduce", "ring broken",
                       {.detail = "64 elements of bf16", .device = 3, .rank = 7}),
      "NCCL error 3 (internal error): ncclAllReduce: ring broken, 64 elements of bf16, device 3 of rank 7, set "
      "NCCL_DEBUG=INFO to see which call failed, and why");
  CHECK_THROWS_AS(throw_nccl_error(ncclInternalError, "ncclAllReduce", "", {}), SystemError);
}

}  // namespace shardscope::parallel
