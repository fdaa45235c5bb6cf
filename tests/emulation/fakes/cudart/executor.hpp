// What devices have to do, as one graph: launches, copies, works of libraries, and what each must wait for. Streams and
// captured graphs (streams.hpp, graphs.hpp) put nodes in; the machine lets it start them, first come, first served, or
// in a random order that the edges allow.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/emulation/fakes/call.hpp"
#include "tests/emulation/machine.hpp"

namespace shardscope::emulation {

/// A kernel with its arguments, which were copied at the call.
struct KernelLaunch {
  const KernelEntry* kernel = nullptr;
  std::vector<std::vector<std::byte>> arguments;
  dim3 size;
  dim3 block_size;
  int64_t shared_bytes = 0;
};

/// A copy or fill. Memory that is none of ours, neither a device's nor pinned, is the host's and not looked at.
struct Transfer {
  std::string name;  // of the runtime's function
  std::byte* target = nullptr;
  const std::byte* source = nullptr;  // nullptr: fill with `value`, or `staged`
  int value = 0;
  int64_t bytes = 0;
  std::vector<std::byte> staged;  // read from pageable memory at the call
  int device = -1;                // whose writes it makes; -1: of the device of its stream

  const std::byte* data() const { return staged.empty() ? source : staged.data(); }
};

/// What a node does: one of these, or nothing (then it only orders others). Immutable: graphs run it again and again.
struct Operation {
  std::shared_ptr<const KernelLaunch> launch;
  std::shared_ptr<const Transfer> transfer;
  std::shared_ptr<const Work> work;
  int device = 0;
};

struct Node;

enum class Order : uint8_t {
  kFull,
  kProgrammatic,  // may start once the launch before it lets it (programmatic dependent launch)
  kSilent,        // comes after it, of which neither learns anything
};

struct Edge {
  std::shared_ptr<Node> before;
  Order order = Order::kFull;
};

/// One run of an operation.
struct Node {
  enum class State : uint8_t { kWaiting, kRunning, kDone };

  Operation operation;
  std::vector<Edge> after;          // those that are not done
  std::vector<uint64_t> followers;  // the numbers of those that wait for it
  KnowledgePtr base;                // what it knows at its begin: of those before it that are done, and of the host
  std::shared_ptr<Node> launched_behind;  // a programmatic launch: the launch before it
  std::shared_ptr<Node> marks;            // the record of an event: the launch before it in the stream
  State state = State::kWaiting;
  uint64_t number = 0;

  // While it runs, and when it is done.
  std::shared_ptr<Grid> grid;
  std::unique_ptr<Work::Run> run;
  BlockId block = 0;        // of a work
  uint64_t source_sum = 0;  // of the bytes of pinned memory that it reads, at its enqueueing
  uint64_t source_changes = 0;
  KnowledgePtr known;    // to whom waits for it
  uint64_t done_ns = 0;  // the machine's clock
};

/// True if all that comes before is done.
bool all_done(const std::vector<Edge>& edges);

class Executor final : public Source {
 public:
  Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  ~Executor();

  /// Takes the node, to run after those edges.
  std::shared_ptr<Node> submit(Operation operation, std::vector<Edge> after);

  bool start_ready() override;
  bool waits() const override { return waiting_works_ > 0; }
  std::string waits_for() const override;

  bool idle() const { return pending_.empty(); }
  bool holds(const void* serial_key) const;
  /// True if nothing of that device (kPinned: of any) with a number up to `last` is left.
  bool done_up_to(int device, uint64_t last) const;
  uint64_t last_number() const { return last_number_; }
  bool waits_for_others() const;

  /// The host knows what the node did.
  void host_learns(const Node& node) { host_known_ = joined(host_known_, node.known); }
  void host_learns_all_of(int device) { host_known_ = joined(host_known_, done_[device]); }

 private:
  bool finish_one();
  void consider(Node& node);
  void start(Node& node);
  void start_launch(Node& node);
  bool begin_access(Node& node, const std::vector<Range>& ranges);
  void perform_transfer(Node& node);
  bool go_on(Node& node);
  void finish(Node& node, KnowledgePtr known);
  bool host_changed_source(const Node& node) const;
  void note_pinned_writes(const Operation& operation);

  std::map<uint64_t, std::shared_ptr<Node>> pending_;  // by number, which is the order of the calls
  std::set<uint64_t> pending_of_[kMostDevices];
  std::set<uint64_t> ready_;  // waiting nodes that may start
  std::vector<Node*> early_;  // those that only wait for a launch to let them start
  std::vector<Node*> running_;
  uint64_t last_number_ = 0;
  int64_t waiting_works_ = 0;
  KnowledgePtr host_known_;
  KnowledgePtr done_[kMostDevices];
  std::map<const void*, std::weak_ptr<Node>> serial_;
  std::map<const void*, uint64_t> changes_;  // by pinned allocation: begins and ends of nodes that may write to it
};

/// The process's.
Executor& executor();
void forget_executor();

}  // namespace shardscope::emulation
