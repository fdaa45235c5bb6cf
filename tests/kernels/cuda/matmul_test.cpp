// Products by cuBLASLt, or its stand-in, against doubles.
#include "tests/kernels/cuda/conditions.hpp"
#include "tests/kernels/cuda/matmul_case.hpp"

using namespace shardscope;
using namespace shardscope::test;
using kernels::DType;

TEST_CASE("cuda matmul: every dtype, shape and stride") {
  under_conditions({.seeds = 2}, [] {
    MatMulMachine machine;
    for (const auto& [dtype, out_dtype] :
         {std::pair{DType::kF32, DType::kF32}, std::pair{DType::kF16, DType::kF32}, std::pair{DType::kF16, DType::kF16},
          std::pair{DType::kBF16, DType::kF32}, std::pair{DType::kBF16, DType::kBF16}}) {
      check_matmul(machine, {dtype, out_dtype, 1, 1, 1});
      check_matmul(machine, {dtype, out_dtype, 3, 7, 5, 1});
      check_matmul(machine, {dtype, out_dtype, 33, 65, 129});
      check_matmul(machine, {dtype, out_dtype, 9, 64, 300, 2});
    }
  });
}

TEST_CASE("cuda matmul: the shapes of a real model's layer") {
  under_conditions({.seeds = 0}, [] {
    MatMulMachine machine;
    check_matmul(machine, {DType::kBF16, DType::kBF16, 16, 576, 1536});
    check_matmul(machine, {DType::kBF16, DType::kF32, 16, 960, 576});
  });
}

TEST_CASE("cuda matmul: no rows, no outputs, no terms") {
  under_conditions({.seeds = 1}, [] {
    MatMulMachine machine;
    check_matmul(machine, {DType::kF16, DType::kF16, 0, 8, 8});
    check_matmul(machine, {DType::kF16, DType::kF16, 4, 0, 8});
    check_matmul(machine, {DType::kF16, DType::kF16, 3, 9, 0, 1});  // a rank without a share: zeros
  });
}

TEST_CASE("cuda matmul: proposals that need more workspace than there is are none") {
  under_conditions({.seeds = 1}, [] {
    MatMulMachine machine(0);
    check_matmul(machine, {DType::kBF16, DType::kF32, 33, 65, 129});
  });
}

TEST_CASE("cuda matmul: a captured product") {
  under_conditions({.seeds = 2}, [] {
    MatMulMachine machine;
    cudaStream_t stream = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    const MatMulProduct product({DType::kF16, DType::kF16, 8, 64, 256});
    check_cuda(cudaDeviceSynchronize(), "uploads");
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    check_good(machine.matmul.run(product.arguments(), stream));
    check_cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    check_cuda(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    check_cuda(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
    CHECK(product.difference() == "");

    check_good(machine.matmul.run(product.arguments(), stream));
    CHECK(product.difference() == "");
    check_cuda(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
    check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
  });
}

TEST_CASE("cuda matmul: what it refuses") {
  under_conditions({.seeds = 0}, [] {
    MatMulMachine machine;
    const MatMulProduct product({DType::kF16, DType::kF16, 8, 64, 256});
    const auto status_after = [&](auto change) {
      cuda::MatMulArguments arguments = product.arguments();
      change(arguments);
      return machine.matmul.run(arguments, nullptr).status;
    };
    using Arguments = cuda::MatMulArguments;
    CHECK(status_after([](Arguments&) {}) == CUBLAS_STATUS_SUCCESS);
    const auto refused = [&](auto change) { return status_after(change) == CUBLAS_STATUS_INVALID_VALUE; };
    CHECK(refused([](Arguments& it) { it.weights.dtype = DType::kQ4_0; }));
    CHECK(refused([](Arguments& it) { it.out_dtype = DType::kBF16; }));
    CHECK(refused([](Arguments& it) { it.rows = -1; }));
    CHECK(refused([](Arguments& it) { it.x_stride = 260; }));
    CHECK(refused([](Arguments& it) { it.x_stride = 248; }));
    CHECK(refused([](Arguments& it) { it.out_stride = 68; }));
    CHECK(refused([](Arguments& it) { it.out_stride = 56; }));
    CHECK(refused([](Arguments& it) { it.weights.row_bytes = 520; }));
    CHECK(refused([](Arguments& it) { it.weights.row_bytes = 496; }));
    CHECK(refused([](Arguments& it) { it.x = static_cast<const std::byte*>(it.x) + 8; }));
    CHECK(refused([](Arguments& it) { it.weights.values = static_cast<const std::byte*>(it.weights.values) + 8; }));
    CHECK(refused([](Arguments& it) { it.out = static_cast<std::byte*>(it.out) + 8; }));
  });
}
