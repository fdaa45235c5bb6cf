#include "kernels/cuda/matmul.hpp"

#include <utility>

#include "kernels/cuda/cublas_check.hpp"

namespace shardscope::cuda {
namespace {

using kernels::DType;

constexpr uint32_t kAlignmentBytes = 16;  // of pointers and rows: what the fastest kernels of the library ask for

bool plain(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}
int64_t element_bytes(DType dtype) {
  return dtype == DType::kF32 ? 4 : 2;
}
cudaDataType data_type(DType dtype) {
  return dtype == DType::kF32 ? CUDA_R_32F : dtype == DType::kF16 ? CUDA_R_16F : CUDA_R_16BF;
}

MatMulResult of(cublasStatus_t status, const char* operation) {
  return {.status = status, .operation = operation};
}
MatMulResult of(cudaError_t error, const char* operation) {
  return {.error = error, .operation = operation};
}

bool valid(const MatMulArguments& arguments) {
  const DeviceMatrix& weights = arguments.weights;
  const auto aligned = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % kAlignmentBytes == 0; };
  if (!plain(weights.dtype) || (arguments.out_dtype != DType::kF32 && arguments.out_dtype != weights.dtype)) {
    return false;
  }
  if (arguments.rows < 0 || weights.rows < 0 || weights.columns < 0) return false;
  const int64_t in_bytes = element_bytes(weights.dtype);
  return aligned(weights.values) && aligned(arguments.x) && aligned(arguments.out) &&
         weights.row_bytes % kAlignmentBytes == 0 && weights.row_bytes >= weights.columns * in_bytes &&
         arguments.x_stride * in_bytes % kAlignmentBytes == 0 && arguments.x_stride >= weights.columns &&
         arguments.out_stride * element_bytes(arguments.out_dtype) % kAlignmentBytes == 0 &&
         arguments.out_stride >= weights.rows;
}

/// A product without terms.
MatMulResult clear(const MatMulArguments& arguments, cudaStream_t stream) {
  const int64_t bytes = element_bytes(arguments.out_dtype);
  for (int64_t row = 0; row < arguments.rows; ++row) {
    auto* const begin = static_cast<std::byte*>(arguments.out) + row * arguments.out_stride * bytes;
    const cudaError_t error = cudaMemsetAsync(begin, 0, static_cast<size_t>(arguments.weights.rows * bytes), stream);
    if (error != cudaSuccess) return of(error, "cudaMemsetAsync");
  }
  return {};
}

}  // namespace

MatMul::MatMul(MatMulWorkspace workspace, std::function<void(cudaEvent_t)> wait, const CallContext& where)
    : workspace_(workspace), wait_(std::move(wait)) {
  cublasLtHandle_t handle = nullptr;
  check_cublas(cublasLtCreate(&handle), "cublasLtCreate", where);
  handle_ = Handle(handle);
  for (Event& event : events_) {
    cudaEvent_t made = nullptr;
    check_cuda(cudaEventCreate(&made), "cudaEventCreate", where);
    event = Event(made);
  }
}

MatMulResult MatMul::run(const MatMulArguments& arguments, cudaStream_t stream) {
  if (!valid(arguments)) return of(CUBLAS_STATUS_INVALID_VALUE, "matmul (dtypes, strides, alignment)");
  if (arguments.rows == 0 || arguments.weights.rows == 0) return {};
  if (arguments.weights.columns == 0) return clear(arguments, stream);
  const Shape shape{.dtype = arguments.weights.dtype,
                    .out_dtype = arguments.out_dtype,
                    .rows = arguments.rows,
                    .n = arguments.weights.rows,
                    .k = arguments.weights.columns,
                    .x_stride = arguments.x_stride,
                    .weight_stride = arguments.weights.row_bytes / element_bytes(arguments.weights.dtype),
                    .out_stride = arguments.out_stride};
  auto found = plans_.find(shape);
  if (found == plans_.end()) {
    Plan plan;
    if (const MatMulResult result = make_plan(shape, plan); !result.good()) return result;
    found = plans_.emplace(shape, std::move(plan)).first;
  }
  Plan& plan = found->second;
  if (!plan.measured) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    const cudaError_t error = cudaStreamIsCapturing(stream, &capture);
    if (error != cudaSuccess) return of(error, "cudaStreamIsCapturing");
    if (capture == cudaStreamCaptureStatusNone) {
      if (const MatMulResult result = measure(plan, arguments, stream); !result.good()) return result;
    }
  }
  return enqueue(plan, plan.proposals.front(), arguments, stream);
}

/// The library's matrices are column-major: ours are its transposed ones, so that out^T [n, rows] is what it computes,
/// as op(weights^T [k, n]) * x^T [k, rows] with op transposing. All rows of ours are its columns.
MatMulResult MatMul::make_plan(const Shape& shape, Plan& plan) const {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasStatus_t status = cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  if (status != CUBLAS_STATUS_SUCCESS) return of(status, "cublasLtMatmulDescCreate");
  plan.operation = Operation(operation);
  const int32_t transposed = CUBLAS_OP_T;
  status = cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
  if (status != CUBLAS_STATUS_SUCCESS) return of(status, "cublasLtMatmulDescSetAttribute");

  const auto make_layout = [](Layout& layout, DType dtype, int64_t side_by_side, int64_t count, int64_t stride) {
    cublasLtMatrixLayout_t made = nullptr;
    const cublasStatus_t result = cublasLtMatrixLayoutCreate(
        &made, data_type(dtype), static_cast<uint64_t>(side_by_side), static_cast<uint64_t>(count), stride);
    if (result == CUBLAS_STATUS_SUCCESS) layout = Layout(made);
    return result;
  };
  status = make_layout(plan.weights, shape.dtype, shape.k, shape.n, shape.weight_stride);
  if (status == CUBLAS_STATUS_SUCCESS) status = make_layout(plan.x, shape.dtype, shape.k, shape.rows, shape.x_stride);
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = make_layout(plan.out, shape.out_dtype, shape.n, shape.rows, shape.out_stride);
  }
  if (status != CUBLAS_STATUS_SUCCESS) return of(status, "cublasLtMatrixLayoutCreate");
  return propose(plan);
}

MatMulResult MatMul::propose(Plan& plan) const {
  cublasLtMatmulPreference_t made = nullptr;
  cublasStatus_t status = cublasLtMatmulPreferenceCreate(&made);
  if (status != CUBLAS_STATUS_SUCCESS) return of(status, "cublasLtMatmulPreferenceCreate");
  const Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference(made);
  const auto workspace_bytes = static_cast<uint64_t>(workspace_.bytes);
  status = cublasLtMatmulPreferenceSetAttribute(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
                                                sizeof workspace_bytes);
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    if (status != CUBLAS_STATUS_SUCCESS) break;
    status = cublasLtMatmulPreferenceSetAttribute(made, attribute, &kAlignmentBytes, sizeof kAlignmentBytes);
  }
  if (status != CUBLAS_STATUS_SUCCESS) return of(status, "cublasLtMatmulPreferenceSetAttribute");

  std::array<cublasLtMatmulHeuristicResult_t, kMostProposals> results{};
  int count = 0;
  status = cublasLtMatmulAlgoGetHeuristic(handle_.get(), plan.operation.get(), plan.weights.get(), plan.x.get(),
                                          plan.out.get(), plan.out.get(), made, kMostProposals, results.data(), &count);
  if (status != CUBLAS_STATUS_SUCCESS) return of(status, "cublasLtMatmulAlgoGetHeuristic");
  for (int i = 0; i < count; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = results[static_cast<size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) plan.proposals.push_back(result.algo);
  }
  if (plan.proposals.empty()) return of(CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmulAlgoGetHeuristic");
  return {};
}

/// Each proposal runs twice: the first time loads its code, the second is timed. A proposal that does not run is left
/// out; if none does, the last one's error is the result.
MatMulResult MatMul::measure(Plan& plan, const MatMulArguments& arguments, cudaStream_t stream) {
  if (plan.proposals.size() == 1) {
    plan.measured = true;
    return {};
  }
  MatMulResult failure;
  std::vector<size_t> timed;
  for (size_t i = 0; i < plan.proposals.size(); ++i) {
    MatMulResult result = enqueue(plan, plan.proposals[i], arguments, stream);
    if (result.good()) {
      const cudaError_t error = cudaEventRecord(events_[2 * i].get(), stream);
      if (error != cudaSuccess) return of(error, "cudaEventRecord");
      result = enqueue(plan, plan.proposals[i], arguments, stream);
    }
    if (!result.good()) {
      failure = result;
      continue;
    }
    const cudaError_t error = cudaEventRecord(events_[2 * i + 1].get(), stream);
    if (error != cudaSuccess) return of(error, "cudaEventRecord");
    timed.push_back(i);
  }
  if (timed.empty()) return failure;
  wait_(events_[2 * timed.back() + 1].get());
  size_t fastest = timed.front();
  float least = 0;
  for (const size_t i : timed) {
    float milliseconds = 0;
    const cudaError_t error = cudaEventElapsedTime(&milliseconds, events_[2 * i].get(), events_[2 * i + 1].get());
    if (error != cudaSuccess) return of(error, "cudaEventElapsedTime");
    if (i != timed.front() && milliseconds >= least) continue;
    fastest = i;
    least = milliseconds;
  }
  plan.proposals = {plan.proposals[fastest]};
  plan.measured = true;
  return {};
}

MatMulResult MatMul::enqueue(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const MatMulArguments& arguments,
                             cudaStream_t stream) const {
  const float one = 1;
  const float zero = 0;
  const cublasStatus_t status =
      cublasLtMatmul(handle_.get(), plan.operation.get(), &one, arguments.weights.values, plan.weights.get(),
                     arguments.x, plan.x.get(), &zero, arguments.out, plan.out.get(), arguments.out, plan.out.get(),
                     &algorithm, workspace_.data, static_cast<size_t>(workspace_.bytes), stream);
  return of(status, "cublasLtMatmul");
}

}  // namespace shardscope::cuda
