// What a host program may not do while a stream is captured: the call is refused with CUDA's code, the capture is no
// longer valid, its end says so and gives no graph. And captures that do not end as they began.
#include <thread>

#include "tests/emulation/planted_host/planted_host.hpp"

namespace shardscope::planted_host {
namespace {

constexpr int64_t kCount = HostStand::kCount;
constexpr size_t kBytes = HostStand::kBytes;

/// What a forbidden call works with.
struct World {
  HostStand& stand;
  cudaStream_t stream;  // captured
  cudaStream_t other;
  cudaEvent_t event;  // recorded in the capture
  float* numbers;
  float* scratch;
  float* pinned;
};

/// The call while the stream is captured, or, in the sound twin, after that.
template <class Call>
bool run_during_capture(HostStand& stand, const Call& call, unsigned flags = cudaStreamNonBlocking,
                        cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
  const World world{.stand = stand,
                    .stream = stand.stream(flags),
                    .other = stand.stream(),
                    .event = stand.event(),
                    .numbers = stand.filled(1),
                    .scratch = stand.filled(2),
                    .pinned = stand.pinned<float>(kCount, 3)};
  cudaGraph_t graph = nullptr;
  stand.note(cudaStreamBeginCapture(world.stream, mode));
  stand.combine(world.numbers, 1, world.numbers, world.scratch, world.stream);
  stand.note(cudaEventRecord(world.event, world.stream));
  if (stand.planted()) stand.note(call(world));
  const cudaError_t end = cudaStreamEndCapture(world.stream, &graph);
  if (stand.planted()) return end == cudaErrorStreamCaptureInvalidated && graph == nullptr;
  stand.note(end);
  stand.note(cudaEventRecord(world.event, world.stream));
  stand.note(call(world));
  stand.note(cudaGraphDestroy(graph));
  return graph != nullptr;
}

bool run_malloc(HostStand& stand) {
  return run_during_capture(stand, [](const World&) {
    void* memory = nullptr;
    return cudaMalloc(&memory, 16);
  });
}
bool run_host_alloc(HostStand& stand) {
  return run_during_capture(stand, [](const World&) {
    void* memory = nullptr;
    return cudaHostAlloc(&memory, 16, cudaHostAllocDefault);
  });
}
bool run_free(HostStand& stand) {
  return run_during_capture(stand, [](const World& world) { return cudaFree(world.scratch); });
}
bool run_memcpy(HostStand& stand) {
  return run_during_capture(stand, [](const World& world) {
    return cudaMemcpy(world.pinned, world.numbers, kBytes, cudaMemcpyDeviceToHost);
  });
}
bool run_memset(HostStand& stand) {
  return run_during_capture(stand, [](const World& world) { return cudaMemset(world.scratch, 0, kBytes); });
}
bool run_pageable_copy(HostStand& stand) {
  return run_during_capture(stand, [](const World& world) {
    const std::vector<float> numbers(kCount, 4);
    return cudaMemcpyAsync(world.scratch, numbers.data(), kBytes, cudaMemcpyHostToDevice, world.stream);
  });
}
bool run_stream_synchronize(HostStand& stand) {
  return run_during_capture(stand, [](const World& world) { return cudaStreamSynchronize(world.stream); });
}
bool run_device_synchronize(HostStand& stand) {
  return run_during_capture(stand, [](const World&) { return cudaDeviceSynchronize(); });
}
bool run_stream_query(HostStand& stand) {
  return run_during_capture(stand, [](const World& world) {
    const cudaError_t state = cudaStreamQuery(world.stream);
    return state == cudaErrorNotReady ? cudaSuccess : state;
  });
}
bool run_default_stream(HostStand& stand) {
  return run_during_capture(
      stand, [](const World& world) { return cudaMemsetAsync(world.scratch, 0, kBytes, nullptr); }, cudaStreamDefault);
}
bool run_outside_event(HostStand& stand) {
  return run_during_capture(stand, [](const World& world) {
    const cudaEvent_t outside = world.stand.event();
    world.stand.note(cudaEventRecord(outside, world.other));
    return cudaStreamWaitEvent(world.stream, outside, 0);
  });
}
bool run_merge(HostStand& stand) {
  return run_during_capture(stand, [](const World& world) {
    if (world.stand.planted()) world.stand.note(cudaStreamBeginCapture(world.other, cudaStreamCaptureModeGlobal));
    return cudaStreamWaitEvent(world.other, world.event, 0);
  });
}

/// Events of a capture are no events of the host: these calls are refused. The real runtime leaves the capture valid or
/// not, which its documentation does not say: the end is not looked at.
template <class Call>
bool run_captured_event(HostStand& stand, const Call& call) {
  const cudaStream_t stream = stand.stream();
  const cudaEvent_t event = stand.event();
  float* const numbers = stand.filled(1);
  cudaGraph_t graph = nullptr;
  stand.note(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  stand.combine(numbers, 1, numbers, numbers, stream);
  stand.note(cudaEventRecord(event, stream));
  if (stand.planted()) stand.note(call(event));
  const cudaError_t end = cudaStreamEndCapture(stream, &graph);
  if (stand.planted()) return true;
  stand.note(end);
  stand.note(cudaEventRecord(event, stream));
  stand.note(call(event));
  return true;
}
bool run_event_synchronize(HostStand& stand) {
  return run_captured_event(stand, [](cudaEvent_t event) { return cudaEventSynchronize(event); });
}
bool run_event_query(HostStand& stand) {
  return run_captured_event(stand, [](cudaEvent_t event) {
    const cudaError_t state = cudaEventQuery(event);
    return state == cudaErrorNotReady ? cudaSuccess : state;
  });
}

// ---- ends that do not fit their begins ----

bool run_unjoined(HostStand& stand) {
  const cudaStream_t stream = stand.stream();
  const cudaStream_t fork = stand.stream();
  float* const numbers = stand.filled(1);
  float* const others = stand.filled(1);
  cudaGraph_t graph = nullptr;
  stand.note(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  stand.combine(numbers, 1, numbers, numbers, stream);
  stand.wait_for(fork, stream);
  stand.combine(others, 1, others, others, fork);
  if (!stand.planted()) stand.wait_for(stream, fork);
  stand.note(cudaStreamEndCapture(stream, &graph));
  return (graph == nullptr) == stand.planted();
}

bool run_end_on_another_stream(HostStand& stand) {
  const cudaStream_t stream = stand.stream();
  const cudaStream_t fork = stand.stream();
  float* const numbers = stand.filled(1);
  cudaGraph_t graph = nullptr;
  stand.note(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  stand.combine(numbers, 1, numbers, numbers, stream);
  stand.wait_for(fork, stream);
  stand.combine(numbers, 1, numbers, numbers, fork);
  if (!stand.planted()) stand.wait_for(stream, fork);
  stand.note(cudaStreamEndCapture(stand.planted() ? fork : stream, &graph));
  return (graph == nullptr) == stand.planted();
}

bool run_end_in_another_thread(HostStand& stand) {
  const cudaStream_t stream = stand.stream();
  cudaGraph_t graph = nullptr;
  stand.note(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  cudaError_t end = cudaSuccess;
  if (stand.planted()) {
    std::thread([&] { end = cudaStreamEndCapture(stream, &graph); }).join();
  } else {
    end = cudaStreamEndCapture(stream, &graph);
  }
  stand.note(end);
  return (graph == nullptr) == stand.planted();
}

bool run_end_without_begin(HostStand& stand) {
  const cudaStream_t stream = stand.stream();
  cudaGraph_t graph = nullptr;
  if (!stand.planted()) stand.note(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  stand.note(cudaStreamEndCapture(stream, &graph));
  return (graph == nullptr) == stand.planted();
}

bool run_begin_twice(HostStand& stand) {
  const cudaStream_t stream = stand.stream();
  cudaGraph_t graph = nullptr;
  stand.note(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  if (stand.planted()) stand.note(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  return cudaStreamEndCapture(stream, &graph) == cudaSuccess || stand.planted();
}

bool run_captures_the_default_stream(HostStand& stand) {
  const cudaStream_t stream = stand.planted() ? nullptr : stand.stream();
  stand.note(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  return true;
}

}  // namespace

std::vector<HostBug> capture_bugs() {
  const auto refused = [](std::string_view name, bool (*scenario)(HostStand&), cudaError_t error,
                          std::string_view refusal = "while a stream is captured") {
    return HostBug{.name = name, .scenario = scenario, .error = error, .refusal = refusal};
  };
  constexpr cudaError_t kUnsupported = cudaErrorStreamCaptureUnsupported;
  return {
      refused("malloc_during_capture", run_malloc, kUnsupported),
      refused("host_alloc_during_capture", run_host_alloc, kUnsupported),
      refused("free_during_capture", run_free, kUnsupported),
      refused("memcpy_during_capture", run_memcpy, kUnsupported),
      refused("memset_during_capture", run_memset, kUnsupported),
      refused("pageable_copy_in_capture", run_pageable_copy, kUnsupported, "pageable memory in a graph"),
      refused("stream_synchronize_during_capture", run_stream_synchronize, kUnsupported,
              "the stream is being captured"),
      refused("device_synchronize_during_capture", run_device_synchronize, kUnsupported,
              "a stream of the device is being captured"),
      refused("stream_query_during_capture", run_stream_query, kUnsupported, "the stream is being captured"),
      refused("default_stream_during_capture", run_default_stream, cudaErrorStreamCaptureImplicit,
              "the default stream would wait"),
      refused("capture_waits_for_outside_event", run_outside_event, cudaErrorStreamCaptureIsolation,
              "outside its graph"),
      refused("capture_merged", run_merge, cudaErrorStreamCaptureMerge, "another capture"),
      refused("event_synchronize_in_capture", run_event_synchronize, cudaErrorCapturedEvent,
              "recorded in a captured stream"),
      refused("event_query_in_capture", run_event_query, cudaErrorCapturedEvent, "recorded in a captured stream"),
      refused("fork_not_joined", run_unjoined, cudaErrorStreamCaptureUnjoined, "was not waited for"),
      refused("end_on_another_stream", run_end_on_another_stream, cudaErrorStreamCaptureUnmatched,
              "begun on another stream"),
      refused("end_in_another_thread", run_end_in_another_thread, cudaErrorStreamCaptureWrongThread,
              "begun by another thread"),
      refused("end_without_begin", run_end_without_begin, cudaErrorIllegalState, "not being captured"),
      refused("begin_twice", run_begin_twice, cudaErrorIllegalState, "captured already"),
      refused("captures_the_default_stream", run_captures_the_default_stream, kUnsupported,
              "the default stream cannot be captured"),
  };
}

}  // namespace shardscope::planted_host
