// Captures and graphs of the stand-in runtime, as the host calls them.
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "tests/emulation/fakes/cudart/runtime.hpp"
#include "tests/emulation/fakes/lock.hpp"

namespace shardscope::emulation {
namespace {

cudaError_t no_graph(const Call& call) {
  return refused(call, cudaErrorInvalidValue, "no such graph");
}

}  // namespace
}  // namespace shardscope::emulation

using namespace shardscope::emulation;  // NOLINT(google-build-using-namespace): these have C names

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const Call call("cudaStreamBeginCapture");
  if (call.fails()) return failure(call);
  Stream* const queue = handles().find(stream);
  if (queue == nullptr) return no_stream(call);
  if (failed()) return answer(cudaSuccess);
  return answer(begin_capture(call, *queue, mode));
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Call call("cudaStreamEndCapture");
  if (graph == nullptr) return refused(call, cudaErrorInvalidValue, "nowhere to put the graph");
  *graph = nullptr;
  if (call.fails()) return failure(call);
  Stream* const queue = handles().find(stream);
  if (queue == nullptr) return no_stream(call);
  std::unique_ptr<Graph> captured;
  if (const cudaError_t error = end_capture(call, *queue, &captured); error != cudaSuccess) return answer(error);
  *graph = handles().keep(std::move(captured));
  return answer(cudaSuccess);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const Call call("cudaStreamIsCapturing");
  if (call.fails()) return failure(call);
  const Stream* const queue = handles().find(stream);
  if (queue == nullptr) return no_stream(call);
  if (queue->is_null && handles().disturbed_by_null_stream(queue->device) != nullptr) {
    return refused(call, cudaErrorStreamCaptureImplicit, "the default stream, while a blocking one is captured");
  }
  return give(call, status,
              queue->capture == nullptr     ? cudaStreamCaptureStatusNone
              : queue->capture->invalidated ? cudaStreamCaptureStatusInvalidated
                                            : cudaStreamCaptureStatusActive);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  const Call call("cudaGraphInstantiate");
  if (executable == nullptr) return refused(call, cudaErrorInvalidValue, "nowhere to put the executable graph");
  *executable = nullptr;
  if (call.fails()) return failure(call, cudaErrorMemoryAllocation);
  const Graph* const known = handles().find(graph);
  if (known == nullptr) return no_graph(call);
  if (flags != 0) return refused(call, cudaErrorNotSupported, fmt::format("flags {} are not offered here", flags));
  if (failed()) return answer(cudaSuccess);
  auto made = std::make_unique<GraphExec>();
  made->nodes = std::make_shared<const std::vector<GraphNode>>(known->nodes);
  *executable = handles().keep(std::move(made));
  return answer(cudaSuccess);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const Call call("cudaGraphLaunch");
  if (call.fails()) return failure(call);
  GraphExec* const known = handles().find(executable);
  if (known == nullptr) return no_graph(call);
  Stream* const queue = handles().find(stream);
  if (queue == nullptr) return no_stream(call);
  if (failed()) return answer(cudaSuccess);
  const cudaError_t error = launch(call, *known, *queue);
  wake_worker();
  return answer(error);
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  const Call call("cudaGraphGetNodes");
  if (call.fails()) return failure(call);
  const Graph* const known = handles().find(graph);
  if (known == nullptr) return no_graph(call);
  if (nodes != nullptr) return refused(call, cudaErrorNotSupported, "only their number is offered here");
  return give(call, count, known->nodes.size());
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const Call call("cudaGraphDestroy");
  if (call.fails()) return failure(call);
  if (handles().find(graph) == nullptr) return no_graph(call);
  handles().destroy(graph);
  return answer(cudaSuccess);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  const Call call("cudaGraphExecDestroy");
  if (call.fails()) return failure(call);
  if (handles().find(executable) == nullptr) return no_graph(call);
  handles().destroy(executable);
  return answer(cudaSuccess);
}

}  // extern "C"
