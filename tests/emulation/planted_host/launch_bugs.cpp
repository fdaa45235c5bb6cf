// Launches that a device cannot make, and programmatic ones whose kernel does not wait.
#include "tests/emulation/planted_host/planted_host.hpp"

namespace shardscope::planted_host {
namespace {

using emulation::Fault;

constexpr size_t kMostSharedBytes = 227 << 10;  // of a block, on an H100

struct Shape {
  dim3 grid;
  dim3 block;
};

bool run_shape(HostStand& stand, Shape planted) {
  float* const out = stand.filled(0);
  if (stand.planted()) {
    stand.note(wide(planted.grid, planted.block, 64, out, nullptr));
    return true;
  }
  stand.note(wide({2, 1, 1}, {64, 1, 1}, 64, out, nullptr));
  const std::vector<float> seen = stand.download(out, 3);
  return seen == std::vector<float>{3, 3, 0};
}

bool run_no_blocks(HostStand& stand) {
  return run_shape(stand, {{0, 1, 1}, {32, 1, 1}});
}
bool run_too_many_blocks(HostStand& stand) {
  return run_shape(stand, {{1, 65536, 1}, {32, 1, 1}});
}
bool run_too_many_threads(HostStand& stand) {
  return run_shape(stand, {{1, 1, 1}, {32, 33, 1}});
}
bool run_too_deep_a_block(HostStand& stand) {
  return run_shape(stand, {{1, 1, 1}, {1, 1, 65}});
}

bool run_shared_without_asking(HostStand& stand) {
  float* const out = stand.filled(0);
  if (!stand.planted()) stand.note(allow_wide(64 << 10));
  stand.note(wide(1, 32, 64 << 10, out, nullptr));
  return stand.planted() || stand.first(out) == 3;
}

/// What was allowed on one device is not allowed on another.
bool run_asked_on_another_device(HostStand& stand) {
  stand.select(stand.planted() ? 1 : 0);
  stand.note(allow_wide(64 << 10));
  stand.select(0);
  float* const out = stand.filled(0);
  stand.note(wide(1, 32, 64 << 10, out, nullptr));
  return stand.planted() || stand.first(out) == 3;
}

bool run_asks_for_too_much(HostStand& stand) {
  stand.note(allow_wide(kMostSharedBytes + (stand.planted() ? 1 : 0)));
  return true;
}

/// 64 KiB more than an A100's block can have, and less than an H100's.
bool run_asks_for_an_h100(HostStand& stand) {
  stand.note(allow_wide(200 << 10));
  return true;
}

bool run_stream_of_another_device(HostStand& stand) {
  float* const out = stand.filled(0);
  const cudaStream_t stream = stand.stream();
  if (stand.planted()) stand.select(1);
  stand.note(wide(1, 32, 64, out, stream));
  stand.select(0);
  return stand.planted() || stand.first(out) == 3;
}

bool run_programmatic(HostStand& stand) {
  const float* const ones = stand.filled(1);
  float* const sum = stand.filled(0);
  const cudaStream_t stream = stand.stream();
  stand.combine(ones, 1, ones, sum, stream);
  stand.note(combine(sum, 1, ones, sum, HostStand::kCount, stream, true));
  return stand.error() != cudaSuccess || stand.holds(sum, 3);
}

template <bool kInGraph>
bool run_no_grid_wait(HostStand& stand) {
  const float* const ones = stand.filled(1);
  float* const between = stand.filled(9);
  float* const sum = stand.filled(0);
  const cudaStream_t stream = stand.stream();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  if (kInGraph) stand.note(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  stand.combine(ones, 1, ones, between, stream);
  if (stand.planted()) {
    stand.note(combine_without_wait(between, 1, ones, sum, HostStand::kCount, stream));
  } else {
    stand.note(combine(between, 1, ones, sum, HostStand::kCount, stream, true));
  }
  if (kInGraph) {
    stand.note(cudaStreamEndCapture(stream, &graph));
    stand.note(cudaGraphInstantiate(&executable, graph, 0));
    stand.note(cudaGraphLaunch(executable, stream));
  }
  return stand.holds(sum, 3);
}

bool run_default_stream(HostStand& stand) {
  float* numbers = nullptr;
  stand.note(cudaMalloc(&numbers, HostStand::kBytes));
  const cudaStream_t stream = stand.stream();
  stand.note(cudaMemsetAsync(numbers, 0, HostStand::kBytes, stand.planted() ? nullptr : stream));
  stand.note(cudaStreamSynchronize(stream));
  return true;
}

}  // namespace

std::vector<HostBug> launch_bugs() {
  const auto refused = [](std::string_view name, bool (*scenario)(HostStand&), cudaError_t error,
                          std::string_view refusal, int devices = 1) {
    return HostBug{.name = name, .scenario = scenario, .error = error, .refusal = refusal, .devices = devices};
  };
  const auto on_an_a100 = [](emulation::Options& options, bool planted) { options.model = planted ? "a100" : "h100"; };
  const auto race = [](std::string_view name, bool (*scenario)(HostStand&)) {
    return HostBug{.name = name,
                   .scenario = scenario,
                   .error = cudaErrorLaunchFailure,
                   .fault = Fault::kGlobalRace,
                   .message = "combine_without_wait_kernel",
                   .plain = Plain::kNothing};
  };
  return {
      refused("no_blocks", run_no_blocks, cudaErrorInvalidConfiguration, "0x1x1 blocks"),
      refused("too_many_blocks", run_too_many_blocks, cudaErrorInvalidConfiguration, "1x65536x1 blocks"),
      refused("too_many_threads", run_too_many_threads, cudaErrorInvalidConfiguration, "32x33x1 threads"),
      refused("too_deep_a_block", run_too_deep_a_block, cudaErrorInvalidConfiguration, "1x1x65 threads"),
      refused("shared_without_asking", run_shared_without_asking, cudaErrorInvalidValue, "65536 bytes"),
      refused("asked_on_another_device", run_asked_on_another_device, cudaErrorInvalidValue, "65536 bytes", 2),
      refused("asks_for_too_much", run_asks_for_too_much, cudaErrorInvalidValue, "a block can have"),
      {.name = "asks_for_an_h100",
       .scenario = run_asks_for_an_h100,
       .error = cudaErrorInvalidValue,
       .refusal = "a block can have",
       .prepare = on_an_a100},
      refused("stream_of_another_device", run_stream_of_another_device, cudaErrorInvalidResourceHandle,
              "the stream is of device 0", 2),
      {.name = "programmatic_on_an_a100",
       .scenario = run_programmatic,
       .error = cudaErrorNotSupported,
       .refusal = "programmatic launch",
       .prepare = on_an_a100},
      race("no_grid_wait", run_no_grid_wait<false>),
      race("no_grid_wait_in_a_graph", run_no_grid_wait<true>),
      {.name = "default_stream",
       .scenario = run_default_stream,
       .error = cudaErrorNotPermitted,
       .refusal = "default stream",
       .prepare = [](emulation::Options& options, bool) { options.refuse_default_stream = true; }},
  };
}

}  // namespace shardscope::planted_host
