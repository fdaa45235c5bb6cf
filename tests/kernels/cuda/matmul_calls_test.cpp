// What matmul asks of cuBLASLt's stand-in and of the runtime: how algorithms are chosen, what is allocated, errors.
#include "tests/emulation/emulation.hpp"
#include "tests/kernels/cuda/conditions.hpp"
#include "tests/kernels/cuda/matmul_case.hpp"

using namespace shardscope;
using namespace shardscope::test;
using kernels::DType;

namespace {

/// Calls of a function so far.
int64_t calls_of(const std::string& function) {
  const auto& calls = emulation::calls();
  const auto found = calls.find(function);
  return found == calls.end() ? 0 : found->second;
}

}  // namespace

TEST_CASE("cuda matmul: no rows or outputs ask nothing of the library") {
  under_conditions({.seeds = 0}, [] {
    MatMulMachine machine;
    check_matmul(machine, {DType::kF16, DType::kF16, 0, 8, 8});
    check_matmul(machine, {DType::kF16, DType::kF16, 4, 0, 8});
    CHECK(calls_of("cublasLtMatmul") == 0);
  });
}

TEST_CASE("cuda matmul: only the first call of a shape asks, waits and measures") {
  under_conditions({.seeds = 1}, [] {
    MatMulMachine machine;
    const MatMulCase shape = {DType::kF16, DType::kF32, 8, 64, 256};
    const MatMulProduct first(shape, 1);
    const MatMulProduct second(shape, 7);
    check_good(machine.matmul.run(first.arguments(), nullptr));
    CHECK(calls_of("cublasLtMatmulAlgoGetHeuristic") == 1);
    const int64_t measuring = calls_of("cublasLtMatmul");
    CHECK(measuring == 2 * 4 + 1);  // each of four proposals twice
    CHECK(calls_of("cudaEventElapsedTime") == 4);
    const auto others = [] {
      return calls_of("cublasLtMatmulAlgoGetHeuristic") + calls_of("cublasLtMatmulDescCreate") +
             calls_of("cublasLtMatrixLayoutCreate") + calls_of("cudaEventRecord") + calls_of("cudaEventQuery") +
             calls_of("cudaEventCreate") + calls_of("cudaMalloc") + calls_of("cudaStreamIsCapturing");
    };
    const int64_t before = others();
    check_good(machine.matmul.run(second.arguments(), nullptr));
    check_good(machine.matmul.run(first.arguments(), nullptr));
    CHECK(calls_of("cublasLtMatmul") == measuring + 2);
    CHECK(others() == before);
    CHECK(first.difference() == "");
    CHECK(second.difference() == "");

    const MatMulProduct other({DType::kF16, DType::kF32, 9, 64, 256});
    check_good(machine.matmul.run(other.arguments(), nullptr));
    CHECK(calls_of("cublasLtMatmulAlgoGetHeuristic") == 2);
    CHECK(other.difference() == "");
  });
}

TEST_CASE("cuda matmul: a captured product is not measured, and measured later") {
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
    CHECK(calls_of("cublasLtMatmul") == 1);
    CHECK(calls_of("cudaEventRecord") == 0);
    check_cuda(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    check_cuda(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
    CHECK(product.difference() == "");

    check_good(machine.matmul.run(product.arguments(), stream));
    CHECK(calls_of("cudaEventElapsedTime") == 4);
    CHECK(calls_of("cublasLtMatmulAlgoGetHeuristic") == 1);
    CHECK(product.difference() == "");
    check_cuda(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
    check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
  });
}

TEST_CASE("cuda matmul: errors of the library come back with the call's name") {
  const auto failure_of = [](const std::string& function, int64_t number) {
    emulation::restart({.failing = {{.function = function, .nth = number}}});
    MatMulMachine machine;
    const MatMulProduct product({DType::kF16, DType::kF32, 8, 64, 256});
    const cuda::MatMulResult result = machine.matmul.run(product.arguments(), nullptr);
    if (result.good()) CHECK(product.difference() == "");
    return result.good() ? std::string() : std::string(result.operation);
  };
  CHECK(failure_of("cublasLtMatmulDescCreate", 1) == "cublasLtMatmulDescCreate");
  CHECK(failure_of("cublasLtMatrixLayoutCreate", 2) == "cublasLtMatrixLayoutCreate");
  CHECK(failure_of("cublasLtMatmulAlgoGetHeuristic", 1) == "cublasLtMatmulAlgoGetHeuristic");
  CHECK(failure_of("cudaEventRecord", 2) == "cudaEventRecord");
  CHECK(failure_of("cudaEventElapsedTime", 1) == "cudaEventElapsedTime");
  CHECK(failure_of("cublasLtMatmul", 1).empty());  // that proposal is left out
  CHECK(failure_of("cublasLtMatmul", 9) == "cublasLtMatmul");
  emulation::restart({});
  CHECK(emulation::not_given_back().empty());
}
