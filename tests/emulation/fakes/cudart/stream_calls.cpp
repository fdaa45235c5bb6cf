// Streams and events of the stand-in runtime, as the host calls them.
#include <fmt/format.h>

#include "tests/emulation/fakes/cudart/runtime.hpp"
#include "tests/emulation/fakes/lock.hpp"

namespace shardscope::emulation {
namespace {

cudaError_t no_event(const Call& call) {
  return refused(call, cudaErrorInvalidResourceHandle, "no such event");
}

/// cudaSuccess, or what speaks against asking a stream for its state now.
cudaError_t may_ask(const Call& call, const Stream& stream) {
  if (stream.capture != nullptr) {
    return answer(invalidate(call, *stream.capture, cudaErrorStreamCaptureUnsupported,
                             "the stream is being captured, it does nothing now; the capture is no longer valid"));
  }
  if (const cudaError_t error = may_use(call, stream); error != cudaSuccess) return answer(error);
  return answer(outside_captures(call));
}

cudaError_t may_ask(const Call& call, const Event& event) {
  if (event.recorded_in_capture) {
    if (const auto capture = event.capture.lock()) capture->invalidated = true;
    return refused(call, cudaErrorCapturedEvent, "the event was recorded in a captured stream: it never happens");
  }
  return answer(outside_captures(call));
}

cudaError_t create_stream(const Call& call, cudaStream_t* stream, unsigned flags) {
  if (call.fails()) return failure(call, cudaErrorMemoryAllocation);
  if (stream == nullptr || (flags != cudaStreamDefault && flags != cudaStreamNonBlocking)) {
    return refused(call, cudaErrorInvalidValue, fmt::format("a null pointer, or flags {}", flags));
  }
  if (failed()) return answer(cudaSuccess);
  *stream = handles().make_stream(current_device(), flags == cudaStreamDefault);
  return answer(cudaSuccess);
}

cudaError_t create_event(const Call& call, cudaEvent_t* event, unsigned flags) {
  if (call.fails()) return failure(call, cudaErrorMemoryAllocation);
  constexpr unsigned kKnown = cudaEventBlockingSync | cudaEventDisableTiming;
  if (event == nullptr || (flags & ~kKnown) != 0) {
    return refused(call, cudaErrorInvalidValue, fmt::format("a null pointer, or flags {}", flags));
  }
  if (failed()) return answer(cudaSuccess);
  *event = handles().make_event(current_device(), (flags & cudaEventDisableTiming) == 0);
  return answer(cudaSuccess);
}

}  // namespace
}  // namespace shardscope::emulation

using namespace shardscope::emulation;  // NOLINT(google-build-using-namespace): these have C names

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  const Call call("cudaStreamCreateWithFlags");
  return create_stream(call, stream, flags);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  const Call call("cudaStreamCreate");
  return create_stream(call, stream, cudaStreamDefault);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Call call("cudaStreamSynchronize");
  if (call.fails()) return failure(call);
  const Stream* const queue = handles().find(stream);
  if (queue == nullptr) return no_stream(call);
  if (const cudaError_t error = may_ask(call, *queue); error != cudaSuccess) return error;
  if (failed()) return answer(cudaSuccess);
  return synchronise(call, *queue);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const Call call("cudaStreamQuery");
  if (call.fails()) return failure(call);
  const Stream* const queue = handles().find(stream);
  if (queue == nullptr) return no_stream(call);
  if (const cudaError_t error = may_ask(call, *queue); error != cudaSuccess) return error;
  const std::vector<Edge> tail = queue->tail;
  const bool done = go_on_while_polling([&] { return all_done(tail); });
  if (failed()) return answer(cudaSuccess);
  if (!done) return answer(cudaErrorNotReady);
  for (const Edge& edge : tail) executor().host_learns(*edge.before);
  return answer(cudaSuccess);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Call call("cudaStreamDestroy");
  if (call.fails()) return failure(call);
  const Stream* const queue = stream == nullptr ? nullptr : handles().find(stream);
  if (queue == nullptr || queue->is_null) return no_stream(call);
  if (queue->capture != nullptr) {
    // Nobody can end the capture in the right way any more.
    const std::shared_ptr<Capture> capture = queue->capture;
    std::erase(capture->streams, queue);
    capture->invalidated = true;
    if (capture->origin == queue) leave(*capture);
    call.refuse("the stream was being captured; the capture is no longer valid");
  }
  handles().destroy(stream);  // returns at once; what is in it still runs
  return answer(cudaSuccess);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  const Call call("cudaStreamWaitEvent");
  if (call.fails()) return failure(call);
  Stream* const queue = handles().find(stream);
  if (queue == nullptr) return no_stream(call);
  Event* const known = handles().find(event);
  if (known == nullptr) return no_event(call);
  if (flags != cudaEventWaitDefault) return refused(call, cudaErrorInvalidValue, "the flags have to be 0");
  if (failed()) return answer(cudaSuccess);
  return answer(wait(call, *queue, *known));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const Call call("cudaEventCreateWithFlags");
  return create_event(call, event, flags);
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  const Call call("cudaEventCreate");
  return create_event(call, event, cudaEventDefault);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Call call("cudaEventRecord");
  if (call.fails()) return failure(call);
  Stream* const queue = handles().find(stream);
  if (queue == nullptr) return no_stream(call);
  Event* const known = handles().find(event);
  if (known == nullptr) return no_event(call);
  if (failed()) return answer(cudaSuccess);
  const cudaError_t error = record(call, *queue, *known);
  wake_worker();
  return answer(error);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Call call("cudaEventSynchronize");
  if (call.fails()) return failure(call);
  const Event* const known = handles().find(event);
  if (known == nullptr) return no_event(call);
  if (const cudaError_t error = may_ask(call, *known); error != cudaSuccess) return error;
  const std::shared_ptr<Node> latest = known->latest;
  if (failed() || latest == nullptr) return answer(cudaSuccess);
  wake_worker();
  call.wait_until([&] { return latest->state == Node::State::kDone; });
  if (!failed()) executor().host_learns(*latest);
  return answer(cudaSuccess);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Call call("cudaEventQuery");
  if (call.fails()) return failure(call);
  const Event* const known = handles().find(event);
  if (known == nullptr) return no_event(call);
  if (const cudaError_t error = may_ask(call, *known); error != cudaSuccess) return error;
  const std::shared_ptr<Node> latest = known->latest;
  if (failed() || latest == nullptr) return answer(cudaSuccess);
  const bool done = go_on_while_polling([&] { return latest->state == Node::State::kDone; });
  if (failed()) return answer(cudaSuccess);
  if (!done) return answer(cudaErrorNotReady);
  executor().host_learns(*latest);
  return answer(cudaSuccess);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const Call call("cudaEventElapsedTime");
  if (call.fails()) return failure(call);
  const Event* const first = handles().find(start);
  const Event* const second = handles().find(end);
  if (first == nullptr || second == nullptr) return no_event(call);
  if (!first->timed || !second->timed || first->device != second->device) {
    return refused(call, cudaErrorInvalidResourceHandle, "events without timing, or of different devices");
  }
  if (first->latest == nullptr || second->latest == nullptr) {
    return refused(call, cudaErrorInvalidResourceHandle, "an event that was never recorded");
  }
  if (first->latest->state != Node::State::kDone || second->latest->state != Node::State::kDone) {
    return answer(cudaErrorNotReady);
  }
  constexpr double kNsPerMs = 1e6;
  const double ns = static_cast<double>(second->latest->done_ns) - static_cast<double>(first->latest->done_ns);
  return give(call, milliseconds, static_cast<float>(ns / kNsPerMs));
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Call call("cudaEventDestroy");
  if (call.fails()) return failure(call);
  if (handles().find(event) == nullptr) return no_event(call);
  handles().destroy(event);
  return answer(cudaSuccess);
}

}  // extern "C"
