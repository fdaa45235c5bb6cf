// Memory that a host program frees wrongly or too early, copies the wrong way, or has not got.
#include "tests/emulation/planted_host/planted_host.hpp"

namespace shardscope::planted_host {
namespace {

using emulation::Fault;

constexpr int64_t kCount = HostStand::kCount;
constexpr size_t kBytes = HostStand::kBytes;

/// What `put` puts into the stream, as a graph that can be launched.
template <class Put>
cudaGraphExec_t captured(HostStand& stand, cudaStream_t stream, const Put& put) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  stand.note(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  put();
  stand.note(cudaStreamEndCapture(stream, &graph));
  stand.note(cudaGraphInstantiate(&executable, graph, 0));
  stand.note(cudaGraphDestroy(graph));
  return executable;
}

// ---- a graph whose argument is freed before its replay ----

bool run_replay_after_free(HostStand& stand) {
  float* const ones = stand.filled(1);
  float* const sum = stand.filled(0);
  const cudaStream_t stream = stand.stream();
  const cudaGraphExec_t graph = captured(stand, stream, [&] { stand.combine(ones, 1, ones, sum, stream); });
  stand.note(cudaGraphLaunch(graph, stream));
  stand.finish();
  if (stand.planted()) stand.note(cudaFree(ones));
  stand.note(cudaGraphLaunch(graph, stream));
  const bool right = stand.holds(sum, 2);
  if (!stand.planted()) stand.note(cudaGraphExecDestroy(graph));
  return right;
}

bool run_replay_after_free_host(HostStand& stand) {
  float* const numbers = stand.filled(0);
  auto* const buffer = stand.pinned<float>(kCount, 1);
  const cudaStream_t stream = stand.stream();
  const cudaGraphExec_t graph = captured(
      stand, stream, [&] { stand.note(cudaMemcpyAsync(numbers, buffer, kBytes, cudaMemcpyHostToDevice, stream)); });
  stand.note(cudaGraphLaunch(graph, stream));
  stand.finish();
  if (stand.planted()) stand.note(cudaFreeHost(buffer));
  stand.note(cudaGraphLaunch(graph, stream));
  return stand.holds(numbers, 1);
}

// ---- a number that was an argument when the graph was captured stays what it was ----

bool run_frozen_scalar(HostStand& stand) {
  const float* const ones = stand.filled(1);
  float* const sum = stand.filled(0);
  auto* const length = stand.pinned<float>(kCount, 3);
  float* const length_on_device = stand.unwritten<float>(kCount);
  const cudaStream_t stream = stand.stream();
  const cudaGraphExec_t graph = captured(stand, stream, [&] {
    stand.note(cudaMemcpyAsync(length_on_device, length, kBytes, cudaMemcpyHostToDevice, stream));
    if (stand.planted()) {
      stand.combine(ones, *length, ones, sum, stream);  // 1 * 3 + 1, for ever
    } else {
      stand.combine(length_on_device, 1, ones, sum, stream);
    }
  });
  stand.note(cudaGraphLaunch(graph, stream));
  bool right = stand.holds(sum, 4);
  for (int64_t i = 0; i < kCount; ++i) length[i] = 4;
  stand.note(cudaGraphLaunch(graph, stream));
  right = stand.holds(sum, 5) && right;
  return right;
}

// ---- the same executable's input is changed while it runs ----

bool run_input_changed_while_replaying(HostStand& stand) {
  auto* const buffer = stand.pinned<float>(kCount, 1);
  float* const numbers = stand.unwritten<float>(kCount);
  const cudaStream_t stream = stand.stream();
  const cudaGraphExec_t graph = captured(
      stand, stream, [&] { stand.note(cudaMemcpyAsync(numbers, buffer, kBytes, cudaMemcpyHostToDevice, stream)); });
  stand.note(cudaGraphLaunch(graph, stream));
  if (!stand.planted()) stand.note(cudaStreamSynchronize(stream));
  for (int64_t i = 0; i < kCount; ++i) buffer[i] = 2;
  stand.note(cudaGraphLaunch(graph, stream));
  return stand.holds(numbers, 2);
}

// ---- frees ----

template <int kWhich>
bool run_wrong_free(HostStand& stand) {
  float* const numbers = stand.filled(1);
  auto* const buffer = stand.pinned<float>(kCount, 1);
  if (!stand.planted()) {
    stand.note(cudaFree(numbers));
    stand.note(cudaFreeHost(buffer));
    stand.note(cudaFree(nullptr));
    stand.note(cudaFreeHost(nullptr));
    return true;
  }
  if constexpr (kWhich == 0) {
    stand.note(cudaFree(numbers));
    stand.note(cudaFree(numbers));
  }
  if constexpr (kWhich == 1) stand.note(cudaFree(numbers + 8));
  if constexpr (kWhich == 2) stand.note(cudaFree(buffer));
  if constexpr (kWhich == 3) stand.note(cudaFreeHost(numbers));
  if constexpr (kWhich == 4) {
    float local = 0;
    stand.note(cudaFree(&local));
  }
  return true;
}

// ---- out of memory: what does not fit is refused, what does is given, and a free makes room ----

bool run_out_of_memory(HostStand& stand) {
  void* most = nullptr;
  void* more = nullptr;
  void* again = nullptr;
  const size_t wanted = (stand.planted() ? 600u : 400u) << 10;
  stand.note(cudaMalloc(&most, 600u << 10));
  stand.note(cudaMalloc(&more, wanted));
  const bool refused = stand.planted() ? more == nullptr : more != nullptr;
  if (cudaFree(most) != cudaSuccess) return false;
  const cudaError_t last = cudaGetLastError();  // no sticky error: it is read once
  return refused && cudaMalloc(&again, 600u << 10) == cudaSuccess && cudaGetLastError() == cudaSuccess &&
         last == (stand.planted() ? cudaErrorMemoryAllocation : cudaSuccess);
}

// ---- copies ----

enum class Slip : uint8_t { kDirection, kBothHost, kNoDirection, kTooLong, kFreed, kNull };

template <Slip kSlip>
bool run_wrong_copy(HostStand& stand) {
  float* const numbers = stand.filled(1);
  float* const others = stand.filled(2);
  std::vector<float> host(kCount, 3);
  const void* source = host.data();
  cudaMemcpyKind kind = cudaMemcpyHostToDevice;
  size_t bytes = kBytes;
  if (stand.planted()) {
    if constexpr (kSlip == Slip::kDirection) kind = cudaMemcpyDeviceToHost;
    if constexpr (kSlip == Slip::kBothHost) kind = cudaMemcpyHostToHost;
    if constexpr (kSlip == Slip::kNoDirection) kind = static_cast<cudaMemcpyKind>(7);
    if constexpr (kSlip == Slip::kNull) source = nullptr;
    if constexpr (kSlip == Slip::kTooLong) {
      source = others;
      kind = cudaMemcpyDeviceToDevice;
      bytes += 4;
    }
    if constexpr (kSlip == Slip::kFreed) stand.note(cudaFree(numbers));
  }
  stand.note(cudaMemcpy(numbers, source, bytes, kind));
  return stand.planted() || stand.holds(numbers, 3);
}

// ---- handles ----

bool run_stream_destroyed(HostStand& stand) {
  float* const numbers = stand.filled(1);
  const cudaStream_t stream = stand.stream();
  if (stand.planted()) stand.note(cudaStreamDestroy(stream));
  stand.note(cudaMemsetAsync(numbers, 0, kBytes, stream));
  return true;
}

bool run_event_destroyed(HostStand& stand) {
  const cudaStream_t stream = stand.stream();
  const cudaEvent_t event = stand.event();
  stand.note(cudaEventRecord(event, stream));
  if (stand.planted()) stand.note(cudaEventDestroy(event));
  stand.note(cudaStreamWaitEvent(stream, event, 0));
  return true;
}

bool run_graph_destroyed(HostStand& stand) {
  float* const numbers = stand.filled(1);
  const cudaStream_t stream = stand.stream();
  const cudaGraphExec_t graph =
      captured(stand, stream, [&] { stand.note(cudaMemsetAsync(numbers, 0, kBytes, stream)); });
  if (stand.planted()) stand.note(cudaGraphExecDestroy(graph));
  stand.note(cudaGraphLaunch(graph, stream));
  return true;
}

}  // namespace

std::vector<HostBug> memory_bugs() {
  const auto refused = [](std::string_view name, bool (*scenario)(HostStand&), cudaError_t error,
                          std::string_view refusal) {
    return HostBug{.name = name, .scenario = scenario, .error = error, .refusal = refusal};
  };
  return {
      {.name = "replay_after_free",
       .scenario = run_replay_after_free,
       .error = cudaErrorIllegalAddress,
       .fault = Fault::kUseAfterFree,
       .message = "combine_kernel",
       .plain = Plain::kNotRun},
      {.name = "replay_after_free_host",
       .scenario = run_replay_after_free_host,
       .error = cudaErrorIllegalAddress,
       .fault = Fault::kUseAfterFree,
       .message = "pinned"},
      {.name = "frozen_scalar", .scenario = run_frozen_scalar},
      {.name = "input_changed_while_replaying",
       .scenario = run_input_changed_while_replaying,
       .error = cudaErrorLaunchFailure,
       .fault = Fault::kHostRace,
       .message = "the host changed"},
      refused("free_twice", run_wrong_free<0>, cudaErrorInvalidValue, "no allocation that lives"),
      refused("free_in_the_middle", run_wrong_free<1>, cudaErrorInvalidValue, "no allocation that lives"),
      refused("free_of_pinned", run_wrong_free<2>, cudaErrorInvalidValue, "pinned"),
      refused("free_host_of_device_memory", run_wrong_free<3>, cudaErrorInvalidValue, "device 0"),
      refused("free_of_a_local", run_wrong_free<4>, cudaErrorInvalidValue, "no allocation that lives"),
      {.name = "out_of_memory",
       .scenario = run_out_of_memory,
       .error = cudaErrorMemoryAllocation,
       .refusal = "bytes, of which",
       .prepare = [](emulation::Options& options, bool) { options.device_memory_bytes = 1 << 20; }},
      refused("wrong_direction", run_wrong_copy<Slip::kDirection>, cudaErrorInvalidValue, "side"),
      refused("copy_between_host_memories", run_wrong_copy<Slip::kBothHost>, cudaErrorInvalidValue, "side"),
      refused("copy_beyond_the_end", run_wrong_copy<Slip::kTooLong>, cudaErrorInvalidValue, "do not lie in one"),
      refused("copy_to_freed_memory", run_wrong_copy<Slip::kFreed>, cudaErrorInvalidValue, "do not lie in one"),
      refused("copy_from_nowhere", run_wrong_copy<Slip::kNull>, cudaErrorInvalidValue, "null"),
      refused("stream_destroyed", run_stream_destroyed, cudaErrorInvalidResourceHandle, "no such stream"),
      refused("event_destroyed", run_event_destroyed, cudaErrorInvalidResourceHandle, "event"),
      refused("graph_destroyed", run_graph_destroyed, cudaErrorInvalidValue, "graph"),
  };
}

}  // namespace shardscope::planted_host
