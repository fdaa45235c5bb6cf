// Running a program made up at random on the stand-ins, and going through it in plain C++ beside that.
#include <cuda_runtime.h>

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "tests/emulation/planted_host/gemm.hpp"
#include "tests/emulation/planted_host/host_kernels.hpp"
#include "tests/emulation/random_host_programs.hpp"
#include "tests/emulation/random_host_programs_expected.hpp"

namespace shardscope::test {
namespace {

using Kind = Resource::Kind;

constexpr size_t kBytes = kNumbers * sizeof(float);
constexpr size_t kWorkspaceBytes = 4096;

class Run {
 public:
  Run(const HostProgram& program, const Omission& omission)
      : program_(program), omission_(omission), expected_(program) {
    make_world();
    capture_graphs();
  }

  HostRun finish() && {
    for (int i = 0; i < std::ssize(program_.steps) && result_.error.empty(); ++i) do_step(i);
    synchronise_all();
    if (result_.error.empty()) compare_all();
    result_.reports = emulation::take_reports();
    if (result_.error.empty()) give_back();
    result_.left = emulation::not_given_back();
    return std::move(result_);
  }

 private:
  void note(cudaError_t error, std::string_view what) {
    if (error != cudaSuccess && result_.error.empty()) {
      result_.error = fmt::format("{}: {}: {}", what, cudaGetErrorName(error), emulation::take_refusal());
    }
  }
  void note_blas(cublasStatus_t status) {
    if (status != CUBLAS_STATUS_SUCCESS && result_.error.empty()) {
      result_.error = fmt::format("cuBLASLt: {}: {}", cublasLtGetStatusName(status), emulation::take_refusal());
    }
  }
  void select(int device) {
    if (device == selected_) return;
    selected_ = device;
    note(cudaSetDevice(device), "cudaSetDevice");
  }
  float*& memory(int resource) { return memory_[static_cast<size_t>(resource)]; }
  int device_of(int stream) const { return program_.streams[static_cast<size_t>(stream)]; }

  void make_world() {
    memory_.resize(program_.resources.size());
    for (int device = 0; device < program_.devices; ++device) {
      select(device);
      for (int peer = 0; peer < program_.devices; ++peer) {
        if (peer != device) note(cudaDeviceEnablePeerAccess(peer, 0), "cudaDeviceEnablePeerAccess");
      }
      blas_.push_back(std::make_unique<Gemm>(GemmShape{.m = kSide, .n = kSide, .k = kSide}));
      blas_.back()->claim_alignment(4);
    }
    for (int i = 0; i < std::ssize(program_.resources); ++i) make_resource(i);
    for (const int device : program_.streams) {
      select(device);
      note(cudaStreamCreateWithFlags(&streams_.emplace_back(), cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    }
    for (const Step& step : program_.steps) {
      events_.push_back(nullptr);
      if (step.stream >= 0 && step.awaited) events_.back() = make_event(device_of(step.stream));
    }
    synchronise_all();
  }

  void make_resource(int number) {
    const Resource& resource = program_.resources[static_cast<size_t>(number)];
    if (resource.kind == Kind::kPinned) {
      note(cudaMallocHost(reinterpret_cast<void**>(&memory(number)), kBytes), "cudaMallocHost");
      if (memory(number) != nullptr) std::copy_n(expected_.of(number).data(), kNumbers, memory(number));
      return;
    }
    select(resource.device);
    const size_t bytes = resource.kind == Kind::kWorkspace ? kWorkspaceBytes : kBytes;
    note(cudaMalloc(reinterpret_cast<void**>(&memory(number)), bytes), "cudaMalloc");
    if (resource.kind == Kind::kWorkspace) return;
    note(cudaMemcpy(memory(number), expected_.of(number).data(), kBytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  }

  cudaEvent_t make_event(int device) {
    select(device);
    cudaEvent_t event = nullptr;
    note(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    return event;
  }

  bool left_out(int graph, int step, size_t wait) const {
    return graph == omission_.graph && step == omission_.step && static_cast<int>(wait) == omission_.wait;
  }

  void capture_graphs() {
    for (int number = 0; number < std::ssize(program_.graphs); ++number) {
      const Graph& graph = program_.graphs[static_cast<size_t>(number)];
      const int device = device_of(graph.stream);
      const cudaStream_t streams[] = {streams_[static_cast<size_t>(graph.stream)],
                                      streams_[static_cast<size_t>(graph.fork)]};
      const int last_of_fork = [&] {
        int last = -1;
        for (int i = 0; i < std::ssize(graph.steps); ++i) {
          if (graph.steps[static_cast<size_t>(i)].stream == 1) last = i;
        }
        return last;
      }();
      std::vector<cudaEvent_t> events;
      for (size_t i = 0; i <= graph.steps.size(); ++i) events.push_back(make_event(device));
      note(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
      if (last_of_fork >= 0) {
        note(cudaEventRecord(events.back(), streams[0]), "cudaEventRecord");
        note(cudaStreamWaitEvent(streams[1], events.back(), 0), "cudaStreamWaitEvent");
      }
      for (int i = 0; i < std::ssize(graph.steps); ++i) {
        const Step& step = graph.steps[static_cast<size_t>(i)];
        const cudaStream_t stream = streams[step.stream];
        for (size_t j = 0; j < step.waits.size(); ++j) {
          if (left_out(number, i, j)) continue;
          note(cudaStreamWaitEvent(stream, events[static_cast<size_t>(step.waits[j].step)], 0), "cudaStreamWaitEvent");
        }
        put(step, stream, device, graph.workspace[step.stream]);
        if (step.awaited || i == last_of_fork) {
          note(cudaEventRecord(events[static_cast<size_t>(i)], stream), "cudaEventRecord");
        }
      }
      if (last_of_fork >= 0) {
        note(cudaStreamWaitEvent(streams[0], events[static_cast<size_t>(last_of_fork)], 0), "cudaStreamWaitEvent");
      }
      cudaGraph_t made = nullptr;
      note(cudaStreamEndCapture(streams[0], &made), "cudaStreamEndCapture");
      note(cudaGraphInstantiate(&graphs_.emplace_back(), made, 0), "cudaGraphInstantiate");
      note(cudaGraphDestroy(made), "cudaGraphDestroy");
      for (const cudaEvent_t event : events) note(cudaEventDestroy(event), "cudaEventDestroy");
    }
  }

  /// Puts a step into a stream or a graph.
  void put(const Step& step, cudaStream_t stream, int device, int workspace) {
    select(device);
    switch (step.act) {
      case Act::kCombine:
        note(planted_host::combine(memory(step.x), static_cast<float>(step.factor), memory(step.y), memory(step.out),
                                   kNumbers, stream, step.programmatic),
             "combine");
        return;
      case Act::kNeighbours:
        note(planted_host::neighbours(memory(step.x), memory(step.out), kNumbers, stream, step.programmatic),
             "neighbours");
        return;
      case Act::kProduct:
        note_blas(blas_[static_cast<size_t>(device)]->run(memory(step.x), memory(step.y), memory(step.out), nullptr,
                                                          memory(workspace), kWorkspaceBytes, stream));
        return;
      case Act::kFill:
        note(cudaMemsetAsync(memory(step.out), 0, kBytes, stream), "cudaMemsetAsync");
        return;
      case Act::kCopy: {
        const auto is_pinned = [&](int resource) {
          return program_.resources[static_cast<size_t>(resource)].kind == Kind::kPinned;
        };
        const cudaMemcpyKind kind = is_pinned(step.x)     ? cudaMemcpyHostToDevice
                                    : is_pinned(step.out) ? cudaMemcpyDeviceToHost
                                                          : cudaMemcpyDeviceToDevice;
        note(cudaMemcpyAsync(memory(step.out), memory(step.x), kBytes, kind, stream), "cudaMemcpyAsync");
        return;
      }
      case Act::kGraph:
        note(cudaGraphLaunch(graphs_[static_cast<size_t>(step.graph)], stream), "cudaGraphLaunch");
        return;
      case Act::kHostWrite:
      case Act::kHostRead:
      case Act::kReplace:
        return;
    }
  }

  void do_step(int number) {
    const Step& step = program_.steps[static_cast<size_t>(number)];
    if (step.stream >= 0) {
      const cudaStream_t stream = streams_[static_cast<size_t>(step.stream)];
      for (size_t i = 0; i < step.waits.size(); ++i) {
        if (left_out(-1, number, i)) continue;
        note(cudaStreamWaitEvent(stream, events_[static_cast<size_t>(step.waits[i].step)], 0), "cudaStreamWaitEvent");
      }
      put(step, stream, device_of(step.stream), program_.workspaces[static_cast<size_t>(step.stream)]);
      if (step.awaited) note(cudaEventRecord(events_[static_cast<size_t>(number)], stream), "cudaEventRecord");
      expected_.go_on(step);
      return;
    }
    for (const Wait& wait : step.waits) host_wait(wait);
    expected_.go_on(step);
    if (!result_.error.empty()) return;
    if (step.act == Act::kHostWrite) std::copy_n(expected_.of(step.out).data(), kNumbers, memory(step.out));
    if (step.act == Act::kHostRead) compare(step.x, memory(step.x), fmt::format("step {}", number));
    if (step.act == Act::kReplace) {
      note(cudaFree(memory(step.out)), "cudaFree");
      select(program_.resources[static_cast<size_t>(step.out)].device);
      note(cudaMalloc(reinterpret_cast<void**>(&memory(step.out)), kBytes), "cudaMalloc");
    }
  }

  void host_wait(const Wait& wait) {
    const int number = program_.steps[static_cast<size_t>(wait.step)].stream;
    const cudaStream_t stream = streams_[static_cast<size_t>(number)];
    const cudaEvent_t event = events_[static_cast<size_t>(wait.step)];
    const auto poll = [&](const auto& ask) {
      cudaError_t state = ask();
      while (state == cudaErrorNotReady) state = ask();
      note(state, "polling");
    };
    switch (wait.how) {
      case HostWait::kEventSynchronize:
        note(cudaEventSynchronize(event), "cudaEventSynchronize");
        return;
      case HostWait::kEventQuery:
        poll([&] { return cudaEventQuery(event); });
        return;
      case HostWait::kStreamSynchronize:
        note(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        return;
      case HostWait::kStreamQuery:
        poll([&] { return cudaStreamQuery(stream); });
        return;
      case HostWait::kDeviceSynchronize:
        select(device_of(number));
        note(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        return;
    }
  }

  void synchronise_all() {
    for (int device = 0; device < program_.devices; ++device) {
      select(device);
      note(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }
  }

  void compare(int resource, const float* seen, const std::string& when) {
    for (int i = 0; i < kNumbers && result_.wrong.empty(); ++i) {
      const float expected = expected_.of(resource)[static_cast<size_t>(i)];
      if (seen[i] == expected) continue;
      result_.wrong = fmt::format("{}, resource {}, number {}: {} instead of {}", when, resource, i, seen[i], expected);
    }
  }

  void compare_all() {
    for (int i = 0; i < std::ssize(program_.resources); ++i) {
      const Kind kind = program_.resources[static_cast<size_t>(i)].kind;
      if (kind == Kind::kWorkspace) continue;
      if (kind == Kind::kReplaceable && !written_last(i)) continue;
      Numbers seen(kNumbers);
      if (kind == Kind::kPinned) {
        std::copy_n(memory(i), kNumbers, seen.data());
      } else {
        note(cudaMemcpy(seen.data(), memory(i), kBytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
      }
      compare(i, seen.data(), "at the end");
    }
  }

  /// Whether what was allocated again has been written since.
  bool written_last(int resource) const {
    for (size_t i = program_.steps.size(); i-- > 0;) {
      if (program_.steps[i].out == resource) return program_.steps[i].act != Act::kReplace;
    }
    return true;
  }

  void give_back() {
    for (const cudaGraphExec_t graph : graphs_) note(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
    for (const cudaEvent_t event : events_) {
      if (event != nullptr) note(cudaEventDestroy(event), "cudaEventDestroy");
    }
    for (const cudaStream_t stream : streams_) note(cudaStreamDestroy(stream), "cudaStreamDestroy");
    blas_.clear();
    for (int i = 0; i < std::ssize(program_.resources); ++i) {
      const bool pinned = program_.resources[static_cast<size_t>(i)].kind == Kind::kPinned;
      note(pinned ? cudaFreeHost(memory(i)) : cudaFree(memory(i)), "free");
    }
  }

  const HostProgram& program_;
  Omission omission_;
  Expected expected_;
  HostRun result_;
  int selected_ = -1;
  std::vector<float*> memory_;  // [resource]
  std::vector<cudaStream_t> streams_;
  std::vector<cudaEvent_t> events_;  // [step] or nullptr
  std::vector<cudaGraphExec_t> graphs_;
  std::vector<std::unique_ptr<Gemm>> blas_;  // [device]
};

}  // namespace

HostRun run_host_program(const HostProgram& program, emulation::Options options, const Omission& omission) {
  options.devices = program.devices;
  emulation::restart(options);
  return Run(program, omission).finish();
}

}  // namespace shardscope::test
