#include "kernels/cuda/owners.hpp"

#include <fmt/format.h>

namespace shardscope::cuda {

std::string memory_text(int64_t bytes) {
  constexpr double kMega = 1e6;
  constexpr double kGiga = 1e9;
  const auto value = static_cast<double>(bytes);
  return value < kGiga ? fmt::format("{:.2f} MB", value / kMega) : fmt::format("{:.2f} GB", value / kGiga);
}

DeviceBuffer::DeviceBuffer(int64_t bytes, std::string_view purpose, CallContext where) : bytes_(bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, static_cast<size_t>(bytes));
  const std::string detail = fmt::format("{} for {}", memory_text(bytes), purpose);
  where.detail = detail;
  check_cuda(error, "cudaMalloc", where);
  memory_ = Owned<void*, cudaFree>(memory);
}

PinnedBuffer::PinnedBuffer(int64_t bytes, std::string_view purpose, CallContext where) : bytes_(bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  const cudaError_t error = cudaMallocHost(&memory, static_cast<size_t>(bytes));
  const std::string detail = fmt::format("{} of page-locked memory for {}", memory_text(bytes), purpose);
  where.detail = detail;
  check_cuda(error, "cudaMallocHost", where);
  memory_ = Owned<void*, cudaFreeHost>(memory);
}

Stream make_stream(CallContext where) {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags", where);
  return Stream(stream);
}

Event make_event(CallContext where) {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags", where);
  return Event(event);
}

Event make_timing_event(CallContext where) {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreate(&event), "cudaEventCreate", where);
  return Event(event);
}

GraphExec capture(cudaStream_t stream, const std::function<void()>& enqueue, CallContext where) {
  // Thread-local: other threads of the process (MPI's, a profiler's) may go on calling CUDA.
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture", where);
  cudaGraph_t captured = nullptr;
  try {
    enqueue();
  } catch (...) {
    static_cast<void>(cudaStreamEndCapture(stream, &captured));
    const Graph dropped(captured);
    throw;
  }
  check_cuda(cudaStreamEndCapture(stream, &captured), "cudaStreamEndCapture", where);
  const Graph graph(captured);
  cudaGraphExec_t executable = nullptr;
  check_cuda(cudaGraphInstantiate(&executable, graph.get(), 0), "cudaGraphInstantiate", where);
  return GraphExec(executable);
}

}  // namespace shardscope::cuda
