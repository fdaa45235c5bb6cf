// A small host program that uses the CUDA runtime, cuBLASLt and NCCL as the product does. Compiled once and linked
// twice from the same object: to the stand-ins and to the real libraries. Ends with 0 and a line of results; with 4 and
// a line that says so where there is no GPU; with 1 and a line that names the call that failed.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdio>
#include <vector>

namespace {

constexpr int kSide = 2;
constexpr size_t kBytes = kSide * kSide * sizeof(float);
constexpr int kNoGpu = 4;

/// A call that must succeed: what it gave and what that means.
struct Failure {
  const char* call;
  int code;
  const char* meaning;
};
void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) throw Failure{call, static_cast<int>(error), cudaGetErrorString(error)};
}
void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) throw Failure{call, static_cast<int>(status), cublasLtGetStatusString(status)};
}
void check(ncclResult_t result, const char* call) {
  if (result != ncclSuccess) throw Failure{call, static_cast<int>(result), ncclGetErrorString(result)};
}

float* upload(const std::vector<float>& values, cudaStream_t stream) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, kBytes), "cudaMalloc");
  check(cudaMemcpyAsync(memory, values.data(), kBytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return static_cast<float*>(memory);
}

/// product = a * b, matrices of kSide x kSide, by columns.
void multiply(const float* a, const float* b, float* product, cudaStream_t stream) {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t layout = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulHeuristicResult_t found{};
  int results = 0;
  const float one = 1;
  const float zero = 0;
  check(cublasLtCreate(&handle), "cublasLtCreate");
  check(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  check(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, kSide, kSide, kSide), "cublasLtMatrixLayoutCreate");
  check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  check(cublasLtMatmulAlgoGetHeuristic(handle, operation, layout, layout, layout, layout, preference, 1, &found,
                                       &results),
        "cublasLtMatmulAlgoGetHeuristic");
  if (results < 1) throw Failure{"cublasLtMatmulAlgoGetHeuristic", 0, "no algorithm"};
  check(cublasLtMatmul(handle, operation, &one, a, layout, b, layout, &zero, product, layout, product, layout,
                       &found.algo, nullptr, 0, stream),
        "cublasLtMatmul");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  check(cublasLtMatmulPreferenceDestroy(preference), "cublasLtMatmulPreferenceDestroy");
  check(cublasLtMatrixLayoutDestroy(layout), "cublasLtMatrixLayoutDestroy");
  check(cublasLtMatmulDescDestroy(operation), "cublasLtMatmulDescDestroy");
  check(cublasLtDestroy(handle), "cublasLtDestroy");
}

/// sum = the sum over one rank.
void reduce(const float* values, float* sum, cudaStream_t stream) {
  ncclUniqueId id;
  ncclComm_t communicator = nullptr;
  check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  check(ncclCommInitRank(&communicator, 1, id, 0), "ncclCommInitRank");
  check(ncclAllReduce(values, sum, kSide * kSide, ncclFloat, ncclSum, communicator, stream), "ncclAllReduce");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  check(ncclCommDestroy(communicator), "ncclCommDestroy");
}

int run() {
  cudaDeviceProp properties{};
  check(cudaSetDevice(0), "cudaSetDevice");
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  float* const a = upload({1, 3, 2, 4}, stream);
  float* const b = upload({5, 7, 6, 8}, stream);
  float* const product = upload({0, 0, 0, 0}, stream);
  float* const sum = upload({0, 0, 0, 0}, stream);
  multiply(a, b, product, stream);
  reduce(product, sum, stream);
  std::vector<float> result(kSide * kSide);
  check(cudaMemcpyAsync(result.data(), sum, kBytes, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  for (float* const memory : {a, b, product, sum}) check(cudaFree(memory), "cudaFree");
  check(cudaStreamDestroy(stream), "cudaStreamDestroy");
  std::printf("%s, compute capability %d.%d: %g %g / %g %g\n", properties.name, properties.major, properties.minor,
              static_cast<double>(result[0]), static_cast<double>(result[2]), static_cast<double>(result[1]),
              static_cast<double>(result[3]));
  return 0;
}

/// What each library says where there is no GPU.
int say_no_gpu(cudaError_t error) {
  int driver = -1;
  int nccl = 0;
  ncclUniqueId id;
  cublasLtHandle_t handle = nullptr;
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  check(ncclGetVersion(&nccl), "ncclGetVersion");
  std::printf(
      "no GPU: cudaGetDeviceCount gives %d (%s), driver version %d; cuBLASLt %zu, cublasLtCreate gives %d; NCCL %d, "
      "ncclGetUniqueId gives %d\n",
      static_cast<int>(error), cudaGetErrorName(error), driver, cublasLtGetVersion(),
      static_cast<int>(cublasLtCreate(&handle)), nccl, static_cast<int>(ncclGetUniqueId(&id)));
  return kNoGpu;
}

}  // namespace

int main() {
  try {
    int devices = 0;  // untouched where there is no driver
    const cudaError_t error = cudaGetDeviceCount(&devices);
    return devices == 0 ? say_no_gpu(error) : run();
  } catch (const Failure& failure) {
    std::printf("%s gives %d: %s\n", failure.call, failure.code, failure.meaning);
    return 1;
  }
}
