// Streams of the stand-in runtime: queues of launches and copies, and when each may start.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "tests/emulation/machine.hpp"

namespace shardscope::emulation {

/// A copy or fill of device or pinned memory. A null allocation stands for memory of the host.
struct Transfer {
  std::string name;  // of the runtime's function
  std::byte* target = nullptr;
  const std::byte* source = nullptr;  // nullptr: fill with `value`
  int value = 0;
  int64_t bytes = 0;
};

/// A marker that the host puts into streams. Waits for it are bound to the latest record before them.
struct Event {
  int64_t recorded = 0;  // how often the host enqueued a record
  int64_t reached = 0;   // how many of those the stream has reached
  KnowledgePtr known;    // at the latest reached
  bool destroyed = false;
};

struct Operation {
  std::shared_ptr<Grid> grid;  // a launch; or
  Event* record = nullptr;     // an event to record; or
  Event* wait = nullptr;       // an event to wait for, until `reached` is at least
  int64_t wait_for = 0;        // this; or
  Transfer transfer;
  bool programmatic = false;
  bool started = false;
  KnowledgePtr host_known;  // what the host knew when it enqueued this
};

struct Stream {
  int device = 0;
  std::deque<Operation> queue;
  KnowledgePtr done;           // of all that has left the queue
  std::shared_ptr<Grid> last;  // the launch that left it last, if nothing else has since
  bool destroyed = false;
};

class Streams final : public Source {
 public:
  Streams();

  Stream& make(int device);
  Stream& null_stream(int device) { return *null_streams_[static_cast<size_t>(device)]; }
  /// nullptr if it is none of ours.
  Stream* find(cudaStream_t stream, int current_device);

  Event& make_event();
  Event* find(cudaEvent_t event);

  void enqueue(Stream& stream, Operation operation);
  /// Runs until the queue of `stream` is empty. The host then knows what it did.
  void synchronise(Stream& stream);
  void synchronise_device(int device);
  void synchronise(Event& event);

  void start_ready() override;

 private:
  void advance(Stream& stream);
  void start(Stream& stream, size_t index);
  void perform(Stream& stream, const Operation& operation);

  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<Stream*> null_streams_;
  std::vector<std::unique_ptr<Event>> events_;
  KnowledgePtr host_known_;
};

}  // namespace shardscope::emulation
