#include "tests/emulation/fakes/cudart/streams.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/emulation/emulation.hpp"
#include "tests/emulation/watchdog.hpp"

namespace shardscope::emulation {
namespace {

std::unique_ptr<Handles>& instance() {
  static auto& handles = *new std::unique_ptr<Handles>(std::make_unique<Handles>());
  return handles;
}

template <class T, class Handle>
T* find_in(const std::map<uintptr_t, std::unique_ptr<T>>& known, Handle handle) {
  const auto found = known.find(reinterpret_cast<uintptr_t>(handle));
  return found == known.end() ? nullptr : found->second.get();
}

bool holds(const std::vector<GraphNode>& nodes, const void* serial_key) {
  return std::any_of(nodes.begin(), nodes.end(), [&](const GraphNode& node) {
    return node.operation.work != nullptr && node.operation.work->serial_key() == serial_key;
  });
}

}  // namespace

Handles& handles() {
  return *instance();
}

void forget_handles() {
  instance() = std::make_unique<Handles>();
}

Handles::Handles() {
  for (int device = 0; device < kMostDevices; ++device) {
    null_streams_.push_back(std::make_unique<Stream>());
    null_streams_.back()->device = device;
    null_streams_.back()->is_null = true;
  }
}

cudaStream_t Handles::make_stream(int device, bool blocking) {
  const uintptr_t handle = next_handle();
  auto& stream = streams_[handle] = std::make_unique<Stream>();
  stream->device = device;
  stream->blocking = blocking;
  stream->held = std::make_unique<Held>(fmt::format("stream of device {}", device));
  return reinterpret_cast<cudaStream_t>(handle);
}

Stream* Handles::find(cudaStream_t stream) {
  if (stream == nullptr || stream == cudaStreamLegacy) return &null_stream();
  return find_in(streams_, stream);
}

void Handles::destroy(cudaStream_t stream) {
  streams_.erase(reinterpret_cast<uintptr_t>(stream));  // what is in it still runs
}

cudaEvent_t Handles::make_event(int device, bool timed) {
  const uintptr_t handle = next_handle();
  auto& event = events_[handle] = std::make_unique<Event>();
  event->device = device;
  event->timed = timed;
  return reinterpret_cast<cudaEvent_t>(handle);
}

Event* Handles::find(cudaEvent_t event) {
  return find_in(events_, event);
}

void Handles::destroy(cudaEvent_t event) {
  events_.erase(reinterpret_cast<uintptr_t>(event));
}

cudaGraph_t Handles::keep(std::unique_ptr<Graph> graph) {
  const uintptr_t handle = next_handle();
  graphs_[handle] = std::move(graph);
  return reinterpret_cast<cudaGraph_t>(handle);
}

Graph* Handles::find(cudaGraph_t graph) {
  return find_in(graphs_, graph);
}

void Handles::destroy(cudaGraph_t graph) {
  graphs_.erase(reinterpret_cast<uintptr_t>(graph));
}

cudaGraphExec_t Handles::keep(std::unique_ptr<GraphExec> graph) {
  const uintptr_t handle = next_handle();
  executables_[handle] = std::move(graph);
  return reinterpret_cast<cudaGraphExec_t>(handle);
}

GraphExec* Handles::find(cudaGraphExec_t graph) {
  return find_in(executables_, graph);
}

void Handles::destroy(cudaGraphExec_t graph) {
  executables_.erase(reinterpret_cast<uintptr_t>(graph));
}

bool Handles::graphs_hold(const void* serial_key) const {
  return std::any_of(graphs_.begin(), graphs_.end(),
                     [&](const auto& entry) { return holds(entry.second->nodes, serial_key); }) ||
         std::any_of(executables_.begin(), executables_.end(),
                     [&](const auto& entry) { return holds(*entry.second->nodes, serial_key); });
}

std::shared_ptr<Capture> Handles::forbidding() const {
  for (const auto& [handle, stream] : streams_) {
    const std::shared_ptr<Capture>& capture = stream->capture;
    if (capture == nullptr || capture->mode == cudaStreamCaptureModeRelaxed) continue;
    if (capture->mode == cudaStreamCaptureModeGlobal || capture->thread == std::this_thread::get_id()) return capture;
  }
  return nullptr;
}

std::shared_ptr<Capture> Handles::disturbed_by_null_stream(int device) const {
  for (const auto& [handle, stream] : streams_) {
    if (stream->capture != nullptr && stream->blocking && stream->device == device) return stream->capture;
  }
  return nullptr;
}

std::shared_ptr<Capture> Handles::capture_of(int device) const {
  for (const auto& [handle, stream] : streams_) {
    if (stream->capture != nullptr && stream->device == device) return stream->capture;
  }
  return nullptr;
}

// ---- what calls do to streams ---------------------------------------------------------------------------------------

cudaError_t invalidate(const Call& call, Capture& capture, cudaError_t error, const std::string& why) {
  capture.invalidated = true;
  call.refuse(why);
  return error;
}

cudaError_t outside_captures(const Call& call) {
  const std::shared_ptr<Capture> capture = handles().forbidding();
  if (capture == nullptr) return cudaSuccess;
  return invalidate(call, *capture, cudaErrorStreamCaptureUnsupported,
                    "not allowed while a stream is captured; the capture is no longer valid");
}

cudaError_t may_use(const Call& call, const Stream& stream) {
  if (stream.is_null) {
    if (Machine::get().options().refuse_default_stream) {
      call.refuse("the default stream is not to be used here: it waits for others on a real device");
      return cudaErrorNotPermitted;
    }
    if (const std::shared_ptr<Capture> capture = handles().disturbed_by_null_stream(stream.device)) {
      return invalidate(call, *capture, cudaErrorStreamCaptureImplicit,
                        "the default stream would wait for a blocking stream that is being captured");
    }
  }
  if (stream.capture != nullptr && stream.capture->invalidated) {
    call.refuse("the stream's capture is no longer valid");
    return cudaErrorStreamCaptureInvalidated;
  }
  return cudaSuccess;
}

namespace {

void add_unique(std::vector<size_t>& to, const std::vector<size_t>& from) {
  for (const size_t one : from) {
    if (std::find(to.begin(), to.end(), one) == to.end()) to.push_back(one);
  }
}

/// The launch that a programmatic one in this stream may overlap: the last thing in it but records of events, which
/// promise no order of their own. nullptr: there is none.
std::shared_ptr<Node> launch_to_overlap(const Stream& stream) {
  if (stream.tail.empty()) return nullptr;
  const std::shared_ptr<Node>& last = stream.tail[0].before;
  return last->operation.launch != nullptr ? last : last->marks;
}

}  // namespace

void run_at_once() {
  Machine& machine = Machine::get();
  if (machine.options().policy != Policy::kAtOnce) return;
  const Watchdog watchdog(machine.options().seconds_to_end);
  const Opened opened;
  while (machine.step(executor(), false) == Step::kRan) continue;
}

cudaError_t enqueue(const Call& call, Stream& stream, Operation operation, bool programmatic,
                    std::shared_ptr<Node>* node) {
  if (const cudaError_t error = may_use(call, stream); error != cudaSuccess) return error;
  operation.device = stream.device;
  if (stream.capture != nullptr) {
    std::vector<GraphNode>& nodes = stream.capture->graph->nodes;
    GraphNode& added = nodes.emplace_back();
    added.after = stream.captured_tail;
    added.programmatic = programmatic && !added.after.empty() && nodes[added.after[0]].operation.launch != nullptr;
    added.operation = std::move(operation);
    stream.captured_tail = {nodes.size() - 1};
    ++stream.captured_version;
    return cudaSuccess;
  }
  std::vector<Edge> after = stream.tail;
  if (std::shared_ptr<Node> overlapped = programmatic ? launch_to_overlap(stream) : nullptr) {
    after[0] = {std::move(overlapped), Order::kProgrammatic};
  }
  const std::shared_ptr<Node> added = executor().submit(std::move(operation), std::move(after));
  stream.tail = {{added}};
  if (node != nullptr) *node = added;
  run_at_once();
  return cudaSuccess;
}

cudaError_t record(const Call& call, Stream& stream, Event& event) {
  if (event.device != stream.device) {
    call.refuse(fmt::format("the event is of device {}, the stream of device {}", event.device, stream.device));
    return cudaErrorInvalidResourceHandle;
  }
  if (stream.capture != nullptr) {
    if (const cudaError_t error = may_use(call, stream); error != cudaSuccess) return error;
    event.latest.reset();
    event.capture = stream.capture;
    event.captured = stream.captured_tail;
    event.captured_on = &stream;
    event.captured_version = stream.captured_version;
    event.recorded_in_capture = true;
    return cudaSuccess;
  }
  std::shared_ptr<Node> overlapped = launch_to_overlap(stream);
  const cudaError_t error = enqueue(call, stream, {}, false, &event.latest);
  if (error != cudaSuccess) return error;
  event.latest->marks = std::move(overlapped);
  event.recorded_in_capture = false;
  return cudaSuccess;
}

namespace {

cudaError_t wait_in_capture(const Call& call, Stream& stream, Event& event) {
  const std::shared_ptr<Capture> capture = event.capture.lock();
  if (capture == nullptr) {
    call.refuse("the event was recorded in a capture that has ended");
    return cudaErrorCapturedEvent;
  }
  if (capture->invalidated) {
    call.refuse("the event's capture is no longer valid");
    return cudaErrorStreamCaptureInvalidated;
  }
  if (stream.capture == nullptr) {
    if (stream.is_null) {
      return invalidate(call, *capture, cudaErrorStreamCaptureImplicit, "the default stream cannot be captured");
    }
    stream.capture = capture;
    stream.captured_tail = event.captured;
    stream.waited_version = stream.captured_version++;
    capture->streams.push_back(&stream);
  } else if (stream.capture != capture) {
    capture->invalidated = true;
    return invalidate(call, *stream.capture, cudaErrorStreamCaptureMerge,
                      "the event belongs to another capture; neither is valid any more");
  } else {
    add_unique(stream.captured_tail, event.captured);
    ++stream.captured_version;
  }
  const bool known =
      std::find(capture->streams.begin(), capture->streams.end(), event.captured_on) != capture->streams.end();
  if (known && event.captured_on != &stream) {
    event.captured_on->waited_version = std::max(event.captured_on->waited_version, event.captured_version);
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t wait(const Call& call, Stream& stream, Event& event) {
  if (const cudaError_t error = may_use(call, stream); error != cudaSuccess) return error;
  if (event.recorded_in_capture) return wait_in_capture(call, stream, event);
  if (event.latest == nullptr) return cudaSuccess;  // never recorded: there is nothing to wait for
  if (stream.capture != nullptr) {
    return invalidate(call, *stream.capture, cudaErrorStreamCaptureIsolation,
                      "a captured stream cannot wait for work outside its graph");
  }
  stream.tail.push_back({event.latest});
  return cudaSuccess;
}

}  // namespace shardscope::emulation
