// Orders that a host program forgets: between streams, between devices, between itself and a stream.
#include "tests/emulation/planted_host/planted_host.hpp"

namespace shardscope::planted_host {
namespace {

using emulation::Fault;

constexpr int64_t kCount = HostStand::kCount;
constexpr size_t kBytes = HostStand::kBytes;

// ---- a second stream copies out what the first still computes ----

bool run_copy_without_event(HostStand& stand) {
  const float* const ones = stand.filled(1);
  float* const sum = stand.filled(9);
  const auto* const result = stand.pinned<float>(kCount, 0);
  const cudaStream_t first = stand.stream();
  const cudaStream_t second = stand.stream();
  stand.combine(ones, 2, ones, sum, first);
  if (!stand.planted()) stand.wait_for(second, first);
  stand.note(cudaMemcpyAsync(const_cast<float*>(result), sum, kBytes, cudaMemcpyDeviceToHost, second));
  stand.finish();
  return result[kCount - 1] == 3;
}

// ---- a fill that overtakes a kernel which still reads ----

bool run_fill_overtakes(HostStand& stand) {
  float* const ones = stand.filled(1);
  float* const sum = stand.filled(0);
  const cudaStream_t first = stand.stream();
  const cudaStream_t second = stand.stream();
  stand.combine(ones, 1, ones, sum, first);
  if (!stand.planted()) stand.wait_for(second, first);
  stand.note(cudaMemsetAsync(ones, 0, kBytes, second));
  return stand.holds(sum, 2);
}

// ---- the wait is called before the event has ever been recorded: it waits for nothing ----

bool run_wait_before_record(HostStand& stand) {
  const float* const ones = stand.filled(1);
  float* const between = stand.filled(9);
  float* const sum = stand.filled(0);
  const cudaStream_t first = stand.stream();
  const cudaStream_t second = stand.stream();
  const cudaEvent_t event = stand.event();
  if (stand.planted()) stand.note(cudaStreamWaitEvent(second, event, 0));
  stand.combine(ones, 1, ones, between, first);
  stand.note(cudaEventRecord(event, first));
  if (!stand.planted()) stand.note(cudaStreamWaitEvent(second, event, 0));
  stand.combine(between, 1, ones, sum, second);
  return stand.holds(sum, 3);
}

// ---- the wait stands for the record before it, not for the one that follows ----

bool run_event_recorded_again(HostStand& stand) {
  const float* const ones = stand.filled(1);
  float* const between = stand.filled(9);
  float* const sum = stand.filled(0);
  const cudaStream_t first = stand.stream();
  const cudaStream_t second = stand.stream();
  const cudaEvent_t event = stand.event();
  stand.combine(ones, 1, ones, sum, first);
  stand.note(cudaEventRecord(event, first));
  if (stand.planted()) stand.note(cudaStreamWaitEvent(second, event, 0));
  stand.combine(ones, 1, ones, between, first);
  stand.note(cudaEventRecord(event, first));
  if (!stand.planted()) stand.note(cudaStreamWaitEvent(second, event, 0));
  stand.combine(between, 1, ones, sum, second);
  return stand.holds(sum, 3);
}

// ---- the device that receives a copy does not wait for it ----

bool run_other_device_does_not_wait(HostStand& stand) {
  const float* const ones = stand.filled(1);
  const cudaStream_t sender = stand.stream();
  stand.select(1);
  float* const received = stand.filled(9);
  const float* const twos = stand.filled(2);
  float* const sum = stand.filled(0);
  const cudaStream_t receiver = stand.stream();
  stand.select(0);
  stand.note(cudaMemcpyAsync(received, ones, kBytes, cudaMemcpyDeviceToDevice, sender));
  const cudaEvent_t sent = stand.event();
  stand.note(cudaEventRecord(sent, sender));
  stand.select(1);
  if (!stand.planted()) stand.note(cudaStreamWaitEvent(receiver, sent, 0));
  stand.combine(received, 1, twos, sum, receiver);
  const bool right = stand.holds(sum, 3);
  stand.select(0);
  return right;
}

// ---- an event is recorded by streams of its own device only ----

bool run_event_of_other_device(HostStand& stand) {
  const cudaStream_t stream = stand.stream();
  stand.select(stand.planted() ? 1 : 0);
  const cudaEvent_t event = stand.event();
  stand.select(0);
  stand.note(cudaEventRecord(event, stream));
  return true;
}

// ---- the host fills a pinned buffer again before it was copied ----

bool run_pinned_overwritten(HostStand& stand) {
  auto* const buffer = stand.pinned<float>(kCount, 1);
  float* const first = stand.unwritten<float>(kCount);
  const cudaStream_t stream = stand.stream();
  stand.note(cudaMemcpyAsync(first, buffer, kBytes, cudaMemcpyHostToDevice, stream));
  if (!stand.planted()) stand.note(cudaStreamSynchronize(stream));
  for (int64_t i = 0; i < kCount; ++i) buffer[i] = 2;
  return stand.holds(first, 1);
}

// ---- the host reads a pinned result before anybody has waited for it ----

bool run_pinned_read_early(HostStand& stand) {
  const float* const ones = stand.filled(1);
  auto* const result = stand.pinned<float>(kCount, 0);
  const cudaStream_t stream = stand.stream();
  stand.note(cudaMemcpyAsync(result, ones, kBytes, cudaMemcpyDeviceToHost, stream));
  if (!stand.planted()) stand.note(cudaStreamSynchronize(stream));
  const bool right = result[kCount - 1] == 1;
  stand.finish();
  return right;
}

// ---- the host polls until an event is done, which it recorded before the kernel ----

bool run_polls_the_wrong_event(HostStand& stand) {
  const float* const ones = stand.filled(1);
  float* const sum = stand.filled(0);
  auto* const result = stand.pinned<float>(kCount, 0);
  const cudaStream_t stream = stand.stream();
  const cudaEvent_t event = stand.event();
  stand.note(cudaMemsetAsync(sum, 0, kBytes, stream));
  if (stand.planted()) stand.note(cudaEventRecord(event, stream));
  stand.combine(ones, 1, ones, sum, stream);
  stand.note(cudaMemcpyAsync(result, sum, kBytes, cudaMemcpyDeviceToHost, stream));
  if (!stand.planted()) stand.note(cudaEventRecord(event, stream));
  cudaError_t state = cudaErrorNotReady;
  while (state == cudaErrorNotReady) state = cudaEventQuery(event);
  stand.note(state);
  const bool right = result[kCount - 1] == 2;
  stand.finish();
  return right;
}

// ---- the host waits for another stream than the one whose result it copies ----

bool run_waits_for_the_wrong_stream(HostStand& stand) {
  const float* const ones = stand.filled(1);
  float* const sum = stand.filled(9);
  const auto* const result = stand.pinned<float>(kCount, 0);
  const cudaStream_t first = stand.stream();
  const cudaStream_t second = stand.stream();
  stand.combine(ones, 1, ones, sum, first);
  stand.note(cudaStreamSynchronize(stand.planted() ? second : first));
  stand.note(cudaMemcpyAsync(const_cast<float*>(result), sum, kBytes, cudaMemcpyDeviceToHost, second));
  stand.finish();
  return result[kCount - 1] == 2;
}

}  // namespace

std::vector<HostBug> order_bugs() {
  const auto race = [](std::string_view name, bool (*scenario)(HostStand&), std::string_view message, int devices = 1) {
    return HostBug{.name = name,
                   .scenario = scenario,
                   .error = cudaErrorLaunchFailure,
                   .fault = Fault::kGlobalRace,
                   .message = message,
                   .plain = Plain::kWrongResult,
                   .devices = devices};
  };
  return {
      race("copy_without_event", run_copy_without_event, "cudaMemcpyAsync"),
      race("fill_overtakes", run_fill_overtakes, "cudaMemsetAsync"),
      race("wait_before_record", run_wait_before_record, "combine_kernel"),
      race("event_recorded_again", run_event_recorded_again, "combine_kernel"),
      race("other_device_does_not_wait", run_other_device_does_not_wait, "cudaMemcpyAsync", 2),
      race("waits_for_the_wrong_stream", run_waits_for_the_wrong_stream, "cudaMemcpyAsync"),
      {.name = "event_of_other_device",
       .scenario = run_event_of_other_device,
       .error = cudaErrorInvalidResourceHandle,
       .refusal = "the event is of device 1",
       .devices = 2},
      {.name = "pinned_overwritten",
       .scenario = run_pinned_overwritten,
       .error = cudaErrorLaunchFailure,
       .fault = Fault::kHostRace,
       .message = "the host changed"},
      {.name = "pinned_read_early", .scenario = run_pinned_read_early},
      {.name = "polls_the_wrong_event", .scenario = run_polls_the_wrong_event},
  };
}

}  // namespace shardscope::planted_host
