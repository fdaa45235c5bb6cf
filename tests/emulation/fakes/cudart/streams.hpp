// Streams, events and captures of the stand-in runtime: what the host's handles stand for, and how a call becomes a
// node of the executor or of a graph that is being captured.
//
// The null stream is an ordinary stream of its device, which no other waits for: that it waits for blocking streams,
// and they for it, is nothing that our code may rely on. Handles are numbers that are never given twice.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/emulation/fakes/cudart/executor.hpp"

namespace shardscope::emulation {

/// An operation of a graph, and which of the operations before it in the graph it follows.
struct GraphNode {
  Operation operation;
  std::vector<size_t> after;
  bool programmatic = false;  // `after` is the one launch before it, which it need not wait for
};

struct Graph {
  std::vector<GraphNode> nodes;
  Held held{"graph"};
};

struct GraphExec {
  std::shared_ptr<const std::vector<GraphNode>> nodes;
  std::shared_ptr<Node> last_launch;  // its end
  Held held{"executable graph"};
};

struct Stream;

/// A stream that is being captured, and those that have joined it.
struct Capture {
  std::unique_ptr<Graph> graph = std::make_unique<Graph>();
  const Stream* origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  bool invalidated = false;
  std::vector<Stream*> streams;
};

struct Stream {
  int device = 0;
  bool blocking = true;
  bool is_null = false;
  std::vector<Edge> tail;  // what comes next follows these

  std::shared_ptr<Capture> capture;
  std::vector<size_t> captured_tail;  // the same, of the capture's graph
  uint64_t captured_version = 0;      // grows with whatever the capture does to it
  uint64_t waited_version = 0;        // the last that another stream of the capture has waited for
  std::unique_ptr<Held> held;
};

/// A marker that the host puts into streams. Waits for it are bound to the latest record before them.
struct Event {
  int device = 0;
  bool timed = true;
  std::shared_ptr<Node> latest;    // nullptr: never recorded, or recorded in a capture
  std::weak_ptr<Capture> capture;  // that it was recorded in
  Stream* captured_on = nullptr;   // and on which of its streams, in which version
  uint64_t captured_version = 0;
  std::vector<size_t> captured;  // what it stands for there
  bool recorded_in_capture = false;
  Held held{"event"};
};

/// What the handles of this process stand for.
class Handles {
 public:
  Handles();

  cudaStream_t make_stream(int device, bool blocking);
  /// Of the current device.
  Stream& null_stream() { return *null_streams_[static_cast<size_t>(current_device())]; }
  /// nullptr if it is none of ours.
  Stream* find(cudaStream_t stream);
  void destroy(cudaStream_t stream);
  cudaEvent_t make_event(int device, bool timed);
  Event* find(cudaEvent_t event);
  void destroy(cudaEvent_t event);
  cudaGraph_t keep(std::unique_ptr<Graph> graph);
  Graph* find(cudaGraph_t graph);
  void destroy(cudaGraph_t graph);
  cudaGraphExec_t keep(std::unique_ptr<GraphExec> graph);
  GraphExec* find(cudaGraphExec_t graph);
  void destroy(cudaGraphExec_t graph);

  bool graphs_hold(const void* serial_key) const;
  /// The capture that forbids calls which are not safe during one, as the thread sees it; nullptr: none does.
  std::shared_ptr<Capture> forbidding() const;
  /// A capture that work of that device's null stream would disturb; nullptr: none.
  std::shared_ptr<Capture> disturbed_by_null_stream(int device) const;
  /// A capture with a stream of that device; nullptr: none.
  std::shared_ptr<Capture> capture_of(int device) const;

 private:
  uintptr_t next_handle() { return next_ += 64; }

  uintptr_t next_ = uintptr_t{0x5EED} << 32;
  std::map<uintptr_t, std::unique_ptr<Stream>> streams_;
  std::vector<std::unique_ptr<Stream>> null_streams_;
  std::map<uintptr_t, std::unique_ptr<Event>> events_;
  std::map<uintptr_t, std::unique_ptr<Graph>> graphs_;
  std::map<uintptr_t, std::unique_ptr<GraphExec>> executables_;
};

Handles& handles();
void forget_handles();

/// With Policy::kAtOnce: lets devices, which are faster than the host, do all they can.
void run_at_once();

// The rest gives the runtime's errors, and says why by call.refuse.

/// What speaks against work in that stream, or asking for its state, now.
cudaError_t may_use(const Call& call, const Stream& stream);
/// Adds the operation to the stream, or to the graph that it is captured to. `node`: the node, if it was not captured.
cudaError_t enqueue(const Call& call, Stream& stream, Operation operation, bool programmatic = false,
                    std::shared_ptr<Node>* node = nullptr);
cudaError_t record(const Call& call, Stream& stream, Event& event);
cudaError_t wait(const Call& call, Stream& stream, Event& event);
/// cudaSuccess if the call may be made now, though it is not safe while a stream is captured; else ends the capture.
cudaError_t outside_captures(const Call& call);
cudaError_t invalidate(const Call& call, Capture& capture, cudaError_t error, const std::string& why);
/// Its streams are captured no more.
void leave(Capture& capture);
cudaError_t begin_capture(const Call& call, Stream& stream, cudaStreamCaptureMode mode);
cudaError_t end_capture(const Call& call, Stream& stream, std::unique_ptr<Graph>* graph);
cudaError_t launch(const Call& call, GraphExec& graph, Stream& stream);

}  // namespace shardscope::emulation
