#include "tests/emulation/fakes/cudart/executor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "tests/emulation/checker.hpp"
#include "tests/emulation/fakes/cudart/ipc.hpp"

namespace shardscope::emulation {
namespace {

struct KnowledgeObserver final : Observer {
  KnowledgeObserver(BlockId self, KnowledgePtr known) : self_(self), known_(std::move(known)) {}

 private:
  bool knows_later(const Access& earlier) const override {
    return earlier.block == self_ || (known_ != nullptr && known_->covers(earlier.stamp()));
  }

  BlockId self_;
  KnowledgePtr known_;
};

std::unique_ptr<Executor>& instance() {
  static auto& executor = *new std::unique_ptr<Executor>(std::make_unique<Executor>());
  return executor;
}

Allocation* allocation_of(const void* address) {
  DeviceMemory& memory = Machine::get().memory();
  return address != nullptr && memory.covers(address) ? memory.find(address) : nullptr;
}

/// Marks the target of a copy as written where its source is.
void copy_written(Allocation& target, int64_t target_offset, const Allocation* source, int64_t source_offset,
                  int64_t bytes) {
  if (source == nullptr || source->written.first_unwritten(source_offset, bytes) < 0) {
    target.written.set(target_offset, bytes, true);
    return;
  }
  for (int64_t i = 0; i < bytes; ++i) {
    target.written.set(target_offset + i, 1, source->written.first_unwritten(source_offset + i, 1) < 0);
  }
}

std::string name_of(const Node& node) {
  return node.operation.transfer != nullptr ? node.operation.transfer->name : node.operation.work->name();
}

/// Of what the host could change while a copy waits for its turn.
uint64_t sum_of(const std::byte* bytes, int64_t count) {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15;
  uint64_t sum = static_cast<uint64_t>(count);
  for (; count >= 8; count -= 8, bytes += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes, 8);
    sum = (sum ^ word) * kFactor;
    sum ^= sum >> 29;
  }
  for (; count > 0; --count, ++bytes) sum = (sum ^ static_cast<uint64_t>(*bytes)) * kFactor;
  return sum;
}

}  // namespace

bool all_done(const std::vector<Edge>& edges) {
  return std::all_of(edges.begin(), edges.end(),
                     [](const Edge& edge) { return edge.before->state == Node::State::kDone; });
}

Executor& executor() {
  return *instance();
}

void forget_executor() {
  instance() = std::make_unique<Executor>();
}

Executor::~Executor() {
  // Not one after another down long chains.
  for (const auto& [number, node] : pending_) {
    node->after.clear();
    node->launched_behind.reset();
    node->marks.reset();
  }
}

std::shared_ptr<Node> Executor::submit(Operation operation, std::vector<Edge> after) {
  auto node = std::make_shared<Node>();
  node->operation = std::move(operation);
  node->after = std::move(after);
  node->base = host_known_;
  node->number = ++last_number_;
  if (const Work* const work = node->operation.work.get(); work != nullptr && work->serial_key() != nullptr) {
    std::weak_ptr<Node>& last = serial_[work->serial_key()];
    if (std::shared_ptr<Node> before = last.lock()) node->after.push_back({std::move(before), Order::kSilent});
    last = node;
  }
  if (const Transfer* const transfer = node->operation.transfer.get(); transfer != nullptr) {
    const Allocation* const source = allocation_of(transfer->source);
    if (source != nullptr && !source->freed && source->device == kPinned) {
      node->source_sum = sum_of(transfer->source, transfer->bytes);
      node->source_changes = changes_[source->begin];
    }
  }
  note_pinned_writes(node->operation);
  for (const Edge& edge : node->after) {
    if (edge.before->state != Node::State::kDone) edge.before->followers.push_back(node->number);
  }
  pending_.emplace(node->number, node);
  pending_of_[node->operation.device].insert(node->number);
  consider(*node);
  Machine::get().grid_event();
  return node;
}

/// Lets go of what is done of that which comes before the node; it may be able to start then.
void Executor::consider(Node& node) {
  std::erase_if(node.after, [&](const Edge& edge) {
    if (edge.before->state != Node::State::kDone) return false;
    if (edge.order == Order::kFull) node.base = joined(node.base, edge.before->known);
    if (edge.order == Order::kProgrammatic) node.launched_behind = edge.before;
    return true;
  });
  if (node.state != Node::State::kWaiting) return;
  if (node.after.empty()) {
    ready_.insert(node.number);
    std::erase(early_, &node);
  } else if (node.after.size() == 1 && node.after[0].order == Order::kProgrammatic &&
             std::find(early_.begin(), early_.end(), &node) == early_.end()) {
    early_.push_back(&node);
  }
}

bool Executor::finish_one() {
  const auto count = std::ssize(running_);
  const int64_t first = count == 0 ? 0 : Machine::get().random_below(count);
  for (int64_t i = 0; i < count; ++i) {
    if (go_on(*running_[static_cast<size_t>((first + i) % count)])) return true;
  }
  return false;
}

bool Executor::start_ready() {
  Machine& machine = Machine::get();
  if (finish_one()) {
    machine.grid_event();  // others may be ready now
    return true;
  }
  std::erase_if(early_, [&](const Node* node) {
    const Grid* const before = node->after[0].before->grid.get();
    const bool may_start = before != nullptr && (before->triggered() || before->done());
    if (may_start) ready_.insert(node->number);
    return may_start;
  });
  if (ready_.empty()) return false;
  const auto chosen = std::next(ready_.begin(), machine.random_below(std::ssize(ready_)));
  Node& node = *pending_.at(*chosen);
  ready_.erase(chosen);
  start(node);
  // With a seed, the others may wait until something else has gone on.
  if (!machine.seeded() || machine.random_below(4) != 0) machine.grid_event();
  return true;
}

void Executor::start(Node& node) {
  node.state = Node::State::kRunning;
  running_.push_back(&node);
  Machine::get().note_progress();
  if (node.operation.launch != nullptr) {
    start_launch(node);
  } else if (node.operation.transfer != nullptr) {
    perform_transfer(node);
  } else if (node.operation.work != nullptr) {
    node.block = Machine::get().new_block_ids({nullptr, 1, 1, node.operation.work->name()});
    if (!begin_access(node, node.operation.work->ranges())) return;
    node.run = node.operation.work->begin();
    ++waiting_works_;
  }
}

void Executor::start_launch(Node& node) {
  const KernelLaunch& launch = *node.operation.launch;
  auto grid = std::make_shared<Grid>();
  grid->kernel = launch.kernel;
  grid->size = launch.size;
  grid->block_size = launch.block_size;
  grid->shared_bytes = launch.shared_bytes;
  grid->device = node.operation.device;
  grid->arguments = launch.arguments;
  for (std::vector<std::byte>& argument : grid->arguments) grid->argument_pointers.push_back(argument.data());
  grid->base = node.base;
  if (!node.after.empty()) node.launched_behind = node.after[0].before;
  if (const Node* const before = node.launched_behind.get()) {
    // It may begin as soon as its predecessor's blocks have, so it knows what those knew at their begin and no more.
    grid->base = joined(before->grid->base, node.base);
    grid->early = before->state != Node::State::kDone;
    if (before->grid->done()) {
      grid->predecessor_done = before->grid->done_knowledge;
    } else {
      grid->predecessor = before->grid.get();
    }
  }
  node.grid = std::move(grid);
  Machine::get().start(node.grid);
}

/// Pinned memory that the operation may write to: what the host is then not to blame for.
void Executor::note_pinned_writes(const Operation& operation) {
  const auto note = [&](const void* address) {
    const Allocation* const allocation = allocation_of(address);
    if (allocation != nullptr && allocation->device == kPinned) ++changes_[allocation->begin];
  };
  if (operation.transfer != nullptr) note(operation.transfer->target);
  if (operation.work != nullptr) {
    for (const Range& range : operation.work->ranges()) {
      if (range.written) note(range.begin);
    }
  }
  if (operation.launch == nullptr) return;
  // A kernel writes to what its arguments point to, those within structures too.
  for (size_t i = 0; i < operation.launch->arguments.size(); ++i) {
    if (operation.launch->kernel->read_only[i]) continue;
    const std::vector<std::byte>& argument = operation.launch->arguments[i];
    for (size_t at = 0; at + sizeof(void*) <= argument.size(); at += sizeof(void*)) {
      const void* address = nullptr;
      std::memcpy(&address, argument.data() + at, sizeof(void*));
      note(address);
    }
  }
}

bool Executor::begin_access(Node& node, const std::vector<Range>& ranges) {
  Machine& machine = Machine::get();
  const KnowledgeObserver observer(node.block, node.base);
  for (const Range& range : ranges) {
    Allocation* const allocation = allocation_of(range.begin);
    if (allocation == nullptr || range.bytes == 0) continue;
    if (allocation->freed || (allocation->exported != nullptr && !still_lives(*allocation->exported))) {
      machine.record(
          Fault::kUseAfterFree, "",
          fmt::format("use after free: {} of {}, which was freed", name_of(node), allocation->description()));
      return false;
    }
    if (!machine.checked()) continue;
    const int64_t offset = static_cast<const std::byte*>(range.begin) - allocation->begin;
    if (!check_runtime_access(node.block, observer, *allocation, offset, range.bytes, range.written)) return false;
  }
  return true;
}

bool Executor::host_changed_source(const Node& node) const {
  const Transfer& transfer = *node.operation.transfer;
  const Allocation* const source = allocation_of(transfer.source);
  if (node.source_sum == 0 || source == nullptr) return false;
  const auto changes = changes_.find(source->begin);
  // A copy or kernel that wrote to it meanwhile is no host.
  if (changes != changes_.end() && changes->second != node.source_changes) return false;
  return sum_of(transfer.source, transfer.bytes) != node.source_sum;
}

void Executor::perform_transfer(Node& node) {
  Machine& machine = Machine::get();
  const Transfer& transfer = *node.operation.transfer;
  node.block = machine.new_block_ids({nullptr, 1, 1, transfer.name});
  Allocation* const target = allocation_of(transfer.target);
  Allocation* const source = allocation_of(transfer.source);
  std::vector<Range> ranges{{transfer.target, transfer.bytes, true}};
  ranges.push_back({transfer.source, transfer.bytes, false});
  if (!begin_access(node, ranges)) return;
  if (host_changed_source(node)) {
    machine.record(Fault::kHostRace, "",
                   fmt::format("the host changed what a copy was still to read: {} of {} bytes from {}", transfer.name,
                               transfer.bytes, source->description()));
    return;
  }
  if (machine.checked() && target != nullptr) {
    copy_written(*target, transfer.target - target->begin, source,
                 source == nullptr ? 0 : transfer.source - source->begin, transfer.bytes);
  }
  machine.see_as(transfer.device < 0 ? node.operation.device : transfer.device);
  if (transfer.data() == nullptr) {
    std::memset(transfer.target, transfer.value, static_cast<size_t>(transfer.bytes));
  } else {
    std::memmove(transfer.target, transfer.data(), static_cast<size_t>(transfer.bytes));
  }
}

/// True if the node is done now.
bool Executor::go_on(Node& node) {
  if (node.grid != nullptr) {
    const Node* const before = node.launched_behind.get();
    if (!node.grid->done() || (before != nullptr && before->state != Node::State::kDone)) return false;
    finish(node, before == nullptr ? node.grid->done_knowledge : joined(before->known, node.grid->done_knowledge));
    return true;
  }
  if (node.run != nullptr) {
    if (!node.run->advance()) return false;
    --waiting_works_;
    node.run.reset();
    for (const Range& range : node.operation.work->ranges()) {
      Allocation* const allocation = allocation_of(range.begin);
      if (!range.written || allocation == nullptr || allocation->freed) continue;
      allocation->written.set(static_cast<const std::byte*>(range.begin) - allocation->begin, range.bytes, true);
    }
  }
  if (node.block == 0) {
    finish(node, node.base);
    return true;
  }
  auto complete = std::make_shared<Knowledge>();
  complete->add_complete(node.block, node.block + 1);
  finish(node, joined(node.base, complete));
  return true;
}

void Executor::finish(Node& node, KnowledgePtr known) {
  Machine& machine = Machine::get();
  note_pinned_writes(node.operation);
  node.state = Node::State::kDone;
  node.known = std::move(known);
  node.done_ns = machine.tick_ns();
  node.launched_behind.reset();
  done_[node.operation.device] = joined(done_[node.operation.device], node.known);
  std::erase(running_, &node);
  for (const uint64_t number : node.followers) consider(*pending_.at(number));
  node.followers.clear();
  machine.note_progress();
  pending_of_[node.operation.device].erase(node.number);
  pending_.erase(node.number);  // at last: it may be the only owner
}

bool Executor::holds(const void* serial_key) const {
  return std::any_of(pending_.begin(), pending_.end(), [&](const auto& entry) {
    const Work* const work = entry.second->operation.work.get();
    return work != nullptr && work->serial_key() == serial_key;
  });
}

bool Executor::done_up_to(int device, uint64_t last) const {
  const auto done = [&](const std::set<uint64_t>& numbers) { return numbers.empty() || *numbers.begin() > last; };
  if (device != kPinned) return done(pending_of_[device]);
  return std::all_of(std::begin(pending_of_), std::end(pending_of_), done);
}

std::string Executor::waits_for() const {
  for (const Node* const node : running_) {
    if (node->run != nullptr) {
      return fmt::format("{} waits for {}", node->operation.work->name(), node->run->waits_for());
    }
  }
  return "";
}

bool Executor::waits_for_others() const {
  return std::any_of(running_.begin(), running_.end(),
                     [](const Node* node) { return node->run != nullptr && node->run->waits_for_others(); });
}

}  // namespace shardscope::emulation
