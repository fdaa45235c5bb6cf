// Captures and graphs: how calls become nodes of a graph, and how a graph runs.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/emulation/emulation.hpp"
#include "tests/emulation/fakes/cudart/streams.hpp"

namespace shardscope::emulation {
void leave(Capture& capture) {
  for (Stream* const stream : capture.streams) {
    stream->capture.reset();
    stream->captured_tail.clear();
  }
}

cudaError_t begin_capture(const Call& call, Stream& stream, cudaStreamCaptureMode mode) {
  if (stream.is_null) {
    call.refuse("the default stream cannot be captured");
    return cudaErrorStreamCaptureUnsupported;
  }
  if (stream.capture != nullptr) {
    call.refuse("the stream is being captured already");
    return cudaErrorIllegalState;
  }
  stream.capture = std::make_shared<Capture>();
  stream.capture->origin = &stream;
  stream.capture->mode = mode;
  stream.capture->thread = std::this_thread::get_id();
  stream.capture->streams.push_back(&stream);
  stream.captured_tail.clear();
  return cudaSuccess;
}

cudaError_t end_capture(const Call& call, Stream& stream, std::unique_ptr<Graph>* graph) {
  if (stream.capture == nullptr) {
    call.refuse("the stream is not being captured");
    return cudaErrorIllegalState;
  }
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
    call.refuse("the capture was begun by another thread");
    return cudaErrorStreamCaptureWrongThread;
  }
  if (capture->origin != &stream) {
    return invalidate(call, *capture, cudaErrorStreamCaptureUnmatched, "the capture was begun on another stream");
  }
  // Others must have been waited for since they did something last, also if that was only to join.
  const bool unjoined = std::any_of(capture->streams.begin(), capture->streams.end(), [&](const Stream* other) {
    return other != &stream && other->waited_version != other->captured_version;
  });
  leave(*capture);
  if (capture->invalidated) {
    call.refuse("the capture is no longer valid: a call before was not allowed in it");
    return cudaErrorStreamCaptureInvalidated;
  }
  if (unjoined) {
    call.refuse("another stream that joined the capture was not waited for");
    return cudaErrorStreamCaptureUnjoined;
  }
  *graph = std::move(capture->graph);
  return cudaSuccess;
}

cudaError_t launch(const Call& call, GraphExec& graph, Stream& stream) {
  if (const cudaError_t error = may_use(call, stream); error != cudaSuccess) return error;
  if (stream.capture != nullptr) {
    return invalidate(call, *stream.capture, cudaErrorStreamCaptureUnsupported,
                      "a graph within a captured stream is not offered here");
  }
  std::vector<std::shared_ptr<Node>> nodes;
  std::vector<bool> is_leaf(graph.nodes->size(), true);
  for (const GraphNode& one : *graph.nodes) {
    std::vector<Edge> after;
    for (const size_t before : one.after) {
      const bool overlaps = one.programmatic && before == one.after[0];
      after.push_back({nodes[before], overlaps ? Order::kProgrammatic : Order::kFull});
      is_leaf[before] = false;
    }
    if (one.after.empty()) {
      after = stream.tail;
      // Launches of one executable graph run one after another.
      if (graph.last_launch != nullptr) after.push_back({graph.last_launch});
    }
    nodes.push_back(executor().submit(one.operation, std::move(after)));
  }
  std::vector<Edge> leaves;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (is_leaf[i]) leaves.push_back({nodes[i]});
  }
  if (leaves.empty()) leaves = stream.tail;
  Operation end;
  end.device = stream.device;
  graph.last_launch = executor().submit(std::move(end), std::move(leaves));
  stream.tail = {{graph.last_launch}};
  run_at_once();
  return cudaSuccess;
}

}  // namespace shardscope::emulation
