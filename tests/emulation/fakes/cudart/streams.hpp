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

/// A copy or fill. Memory that is none of ours, neither a device's nor pinned, is the host's and not looked at.
struct Transfer {
  std::string name;  // of the runtime's function
  std::byte* target = nullptr;
  const std::byte* source = nullptr;  // nullptr: fill with `value`
  int value = 0;
  int64_t bytes = 0;
  std::vector<std::byte> staged;  // if not empty, what `source` points to
};

/// One record of an event: what the stream's work before it did.
struct Ticket {
  bool reached = false;
  KnowledgePtr known;
};

/// A marker that the host puts into streams. Waits for it are bound to the latest record before them.
struct Event {
  int device = 0;
  std::shared_ptr<Ticket> latest;  // nullptr: never recorded
  bool destroyed = false;
};

struct Operation {
  std::shared_ptr<Grid> grid;      // a launch; or
  std::shared_ptr<Ticket> record;  // a record to mark as reached; or
  std::shared_ptr<Ticket> wait;    // a record to wait for; or
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
  bool destroyed = false;      // no longer the host's; what it holds still runs
};

class Streams final : public Source {
 public:
  Streams();

  Stream& make(int device);
  Stream& null_stream(int device) { return *null_streams_[static_cast<size_t>(device)]; }
  /// nullptr if it is none of ours.
  Stream* find(cudaStream_t stream, int current_device);

  Event& make_event(int device);
  Event* find(cudaEvent_t event);

  void enqueue(Stream& stream, Operation operation);
  /// Runs until the queue of `stream` is empty. The host then knows what it did.
  void synchronise(Stream& stream);
  void synchronise_device(int device);
  /// Runs until the latest record of `event` is reached. The host then knows what came before it.
  void synchronise(const Event& event);
  /// Runs what all devices have to do, of which the host learns nothing.
  void drain();

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
