// Planted bugs of order between kernels and copies: a second stream that does not wait for the first, two collectives
// that share one buffer, memory overwritten while a kernel of another stream uses it, calls taken for waits.
#include "kernels/cuda/ptx.cuh"
#include "tests/emulation/planted/planted.hpp"

namespace shardscope::planted {
namespace {

using namespace cuda;
using emulation::Fault;

constexpr unsigned kCount = 64;

cudaStream_t new_stream(Stand& stand) {
  cudaStream_t stream = nullptr;
  stand.note(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}
void wait_for(Stand& stand, cudaStream_t waiting, cudaStream_t awaited) {
  cudaEvent_t event = nullptr;
  stand.note(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  stand.note(cudaEventRecord(event, awaited));
  stand.note(cudaStreamWaitEvent(waiting, event, 0));
  stand.note(cudaEventDestroy(event));
}
void destroy(Stand& stand, cudaStream_t stream) {
  const cudaError_t error = cudaStreamDestroy(stream);  // after a fault every call fails: not this scenario's news
  if (!stand.planted()) stand.note(error);
}

template <int kRole>
__global__ void add(const int* in, int increment, int* out) {
  const int value = in[threadIdx.x];     // planted: both load
  out[threadIdx.x] = value + increment;  // planted: both store
}
constexpr int kFirst = 1;
constexpr int kSecond = 2;

// ---- the second stream reads what the first writes ----

bool run_second_stream_does_not_wait(Stand& stand) {
  const int* const values = stand.counting<int>(kCount);
  int* const between = stand.zeros<int>(kCount);
  int* const out = stand.unwritten<int>(kCount);
  stand.finish();
  const cudaStream_t first = new_stream(stand);
  const cudaStream_t second = new_stream(stand);
  stand.start({1, kCount, 0, first}, add<kFirst>, values, 1, between);
  if (!stand.planted()) wait_for(stand, second, first);
  stand.start({1, kCount, 0, second}, add<kSecond>, between, 1, out);
  const bool right = stand.download(out, kCount).back() == static_cast<int>(kCount) + 1;
  destroy(stand, first);
  destroy(stand, second);
  return right;
}

// ---- the second stream writes what the first still reads ----

bool run_next_step_overwrites_input(Stand& stand) {
  int* const values = stand.counting<int>(kCount);
  int* const out = stand.unwritten<int>(kCount);
  const int* const next = stand.counting<int>(kCount, 1000);
  stand.finish();
  const cudaStream_t first = new_stream(stand);
  const cudaStream_t second = new_stream(stand);
  stand.start({1, kCount, 0, first}, add<kFirst>, values, 0, out);
  if (!stand.planted()) wait_for(stand, second, first);
  stand.start({1, kCount, 0, second}, add<kSecond>, next, 0, values);
  const bool right = stand.download(out, kCount).back() == static_cast<int>(kCount) - 1;
  destroy(stand, first);
  destroy(stand, second);
  return right;
}

// ---- an event that is recorded before the work that it should stand for ----

bool run_event_recorded_too_early(Stand& stand) {
  const int* const values = stand.counting<int>(kCount);
  int* const between = stand.zeros<int>(kCount);
  int* const out = stand.unwritten<int>(kCount);
  stand.finish();
  const cudaStream_t first = new_stream(stand);
  const cudaStream_t second = new_stream(stand);
  if (stand.planted()) wait_for(stand, second, first);
  stand.start({1, kCount, 0, first}, add<kFirst>, values, 1, between);
  if (!stand.planted()) wait_for(stand, second, first);
  stand.start({1, kCount, 0, second}, add<kSecond>, between, 1, out);
  const bool right = stand.download(out, kCount).back() == static_cast<int>(kCount) + 1;
  destroy(stand, first);
  destroy(stand, second);
  return right;
}

// ---- an event that is recorded again: the wait stands for the record before it ----

bool run_event_recorded_again(Stand& stand) {
  int* const between = stand.counting<int>(kCount);
  int* const out = stand.unwritten<int>(kCount);
  stand.finish();
  const cudaStream_t first = new_stream(stand);
  const cudaStream_t second = new_stream(stand);
  cudaEvent_t event = nullptr;
  stand.note(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  stand.note(cudaEventRecord(event, first));
  if (stand.planted()) stand.note(cudaStreamWaitEvent(second, event, 0));
  stand.note(cudaMemsetAsync(between, 0, kCount * sizeof(int), first));
  stand.note(cudaEventRecord(event, first));
  if (!stand.planted()) stand.note(cudaStreamWaitEvent(second, event, 0));
  stand.start({1, kCount, 0, second}, add<kSecond>, between, 1, out);
  const bool right = stand.download(out, kCount).back() == 1;
  destroy(stand, first);
  destroy(stand, second);
  return right;
}

// ---- calls of the host that return before the device has done the work ----

enum class Call : uint8_t { kFill, kUpload, kCopy, kDestroy, kFree };

template <Call kCall>
bool run_call_is_no_wait(Stand& stand) {
  const std::vector<int> zeros(kCount);
  const int* const source = stand.zeros<int>(kCount);
  int* const between = stand.counting<int>(kCount);
  int* const out = stand.unwritten<int>(kCount);
  int* const other = stand.unwritten<int>(kCount);
  stand.finish();
  const cudaStream_t first = new_stream(stand);
  const cudaStream_t second = new_stream(stand);
  switch (kCall) {
    case Call::kFill:
      stand.note(cudaMemset(between, 0, kCount * sizeof(int)));
      break;
    case Call::kUpload:
      stand.note(cudaMemcpy(between, zeros.data(), kCount * sizeof(int), cudaMemcpyHostToDevice));
      break;
    case Call::kCopy:
      stand.note(cudaMemcpy(between, source, kCount * sizeof(int), cudaMemcpyDeviceToDevice));
      break;
    case Call::kDestroy:
    case Call::kFree:
      stand.note(cudaMemsetAsync(between, 0, kCount * sizeof(int), first));
      break;
  }
  if (!stand.planted()) stand.finish();
  if (kCall == Call::kDestroy) stand.note(cudaStreamDestroy(first));
  if (kCall == Call::kFree) stand.note(cudaFree(other));
  stand.start({1, kCount, 0, second}, add<kSecond>, between, 1, out);
  const bool right = stand.download(out, kCount).back() == 1;
  if (kCall != Call::kDestroy) destroy(stand, first);
  destroy(stand, second);
  return right;
}

// ---- copies that overtake kernels of another stream ----

enum class Direction : uint8_t { kUpload, kDownload };

template <Direction kDirection>
bool run_copy_beside_kernel(Stand& stand) {
  int* const values = stand.counting<int>(kCount);
  int* const out = stand.zeros<int>(kCount);
  void* pinned = nullptr;
  stand.note(cudaHostAlloc(&pinned, kCount * sizeof(int), cudaHostAllocDefault));
  auto* const host = static_cast<int*>(pinned);
  for (unsigned i = 0; i < kCount; ++i) host[i] = -1;
  stand.finish();
  const cudaStream_t first = new_stream(stand);
  const cudaStream_t second = new_stream(stand);
  stand.start({1, kCount, 0, first}, add<kFirst>, values, 1, out);
  if (!stand.planted()) wait_for(stand, second, first);
  stand.note(kDirection == Direction::kUpload
                 ? cudaMemcpyAsync(values, host, kCount * sizeof(int), cudaMemcpyHostToDevice, second)
                 : cudaMemcpyAsync(host, out, kCount * sizeof(int), cudaMemcpyDeviceToHost, second));
  stand.finish();
  const int last = kDirection == Direction::kUpload ? stand.download(out, kCount).back() : host[kCount - 1];
  destroy(stand, first);
  destroy(stand, second);
  return last == static_cast<int>(kCount);
}

// ---- two sums at once through one workspace ----

template <bool kPlanted>
__global__ void workspace_used_twice(const int* values, int* workspace, int* sum) {
  workspace[threadIdx.x] = values[threadIdx.x];  // planted: workspace_used_twice
  __syncthreads();
  if (threadIdx.x == 0) {
    int total = 0;
    for (unsigned i = 0; i < blockDim.x; ++i) total += workspace[i];
    *sum = total;
  }
}

bool run_workspace_used_twice(Stand& stand) {
  const int* const values[] = {stand.counting<int>(kCount), stand.counting<int>(kCount, 1)};
  int* const workspace = stand.zeros<int>(2 * kCount);
  int* const sums = stand.unwritten<int>(2);
  stand.finish();
  const cudaStream_t streams[] = {new_stream(stand), new_stream(stand)};
  for (int i = 0; i < 2; ++i) {
    stand.start({1, kCount, 0, streams[i]}, stand.planted() ? workspace_used_twice<true> : workspace_used_twice<false>,
                values[i], workspace + (stand.planted() ? 0 : i * static_cast<int>(kCount)), sums + i);
  }
  const std::vector<int> actual = stand.download(sums, 2);
  for (const cudaStream_t stream : streams) destroy(stand, stream);
  return actual == std::vector<int>{sum_of_counting<int>(kCount), sum_of_counting<int>(kCount, 1)};
}

}  // namespace

BugFile stream_bugs() {
  const auto bug = [](std::string_view name, bool (*run)(Stand&), std::string_view mark) {
    return Bug{.name = name, .scenario = run, .fault = Fault::kGlobalRace, .kernel = "add", .mark = mark};
  };
  return {__FILE__,
          {
              bug("second_stream_does_not_wait", run_second_stream_does_not_wait, "both"),
              bug("next_step_overwrites_input", run_next_step_overwrites_input, "both"),
              bug("event_recorded_too_early", run_event_recorded_too_early, "both"),
              bug("event_recorded_again", run_event_recorded_again, "load"),
              bug("fill_is_no_wait", run_call_is_no_wait<Call::kFill>, "load"),
              bug("upload_is_no_wait", run_call_is_no_wait<Call::kUpload>, "load"),
              bug("copy_is_no_wait", run_call_is_no_wait<Call::kCopy>, "load"),
              bug("stream_destroyed_is_no_wait", run_call_is_no_wait<Call::kDestroy>, "load"),
              bug("free_is_no_wait", run_call_is_no_wait<Call::kFree>, "load"),
              bug("upload_beside_kernel", run_copy_beside_kernel<Direction::kUpload>, "load"),
              bug("download_beside_kernel", run_copy_beside_kernel<Direction::kDownload>, "store"),
              {.name = "workspace_used_twice", .scenario = run_workspace_used_twice, .fault = Fault::kGlobalRace},
          }};
}

}  // namespace shardscope::planted
