#include "tests/emulation/fakes/cudart/streams.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/emulation/checker.hpp"

namespace shardscope::emulation {
namespace {

struct KnowledgeObserver final : Observer {
  explicit KnowledgeObserver(KnowledgePtr known) : known_(std::move(known)) {}

 private:
  bool knows_later(const Access& earlier) const override {
    return known_ != nullptr && known_->covers(earlier.stamp());
  }

  KnowledgePtr known_;
};

Allocation* allocation_of(const void* address) {
  DeviceMemory& memory = Machine::get().memory();
  return memory.covers(address) ? memory.find(address) : nullptr;
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

}  // namespace

Streams::Streams() {
  for (int device = 0; device < kMostDevices; ++device) null_streams_.push_back(&make(device));
}

Stream& Streams::make(int device) {
  streams_.push_back(std::make_unique<Stream>());
  streams_.back()->device = device;
  return *streams_.back();
}

Stream* Streams::find(cudaStream_t stream, int current_device) {
  if (stream == nullptr) return &null_stream(current_device);
  for (const std::unique_ptr<Stream>& known : streams_) {
    if (reinterpret_cast<cudaStream_t>(known.get()) == stream && !known->destroyed) return known.get();
  }
  return nullptr;
}

Event& Streams::make_event(int device) {
  events_.push_back(std::make_unique<Event>());
  events_.back()->device = device;
  return *events_.back();
}

Event* Streams::find(cudaEvent_t event) {
  for (const std::unique_ptr<Event>& known : events_) {
    if (reinterpret_cast<cudaEvent_t>(known.get()) == event && !known->destroyed) return known.get();
  }
  return nullptr;
}

void Streams::enqueue(Stream& stream, Operation operation) {
  operation.host_known = host_known_;
  stream.queue.push_back(std::move(operation));
}

void Streams::synchronise(Stream& stream) {
  Machine::get().run(*this, [&] { return stream.queue.empty(); });
  host_known_ = joined(host_known_, stream.done);
}

void Streams::synchronise(const Event& event) {
  const std::shared_ptr<Ticket> ticket = event.latest;
  if (ticket == nullptr) return;
  Machine::get().run(*this, [&] { return ticket->reached; });
  host_known_ = joined(host_known_, ticket->known);
}

void Streams::drain() {
  const auto empty = [](const std::unique_ptr<Stream>& stream) { return stream->queue.empty(); };
  Machine::get().run(*this, [&] { return std::all_of(streams_.begin(), streams_.end(), empty); });
}

void Streams::synchronise_device(int device) {
  for (const std::unique_ptr<Stream>& stream : streams_) {
    if (stream->device == device) synchronise(*stream);
  }
}

void Streams::start_ready() {
  const auto count = std::ssize(streams_);
  const int64_t first = Machine::get().random_below(count);
  for (int64_t i = 0; i < count; ++i) advance(*streams_[static_cast<size_t>((first + i) % count)]);
}

void Streams::advance(Stream& stream) {
  Machine& machine = Machine::get();
  while (!stream.queue.empty() && !machine.stopped()) {
    Operation& first = stream.queue.front();
    if (first.wait != nullptr && !first.wait->reached) break;
    if (first.grid == nullptr) {
      if (first.wait != nullptr) {
        stream.done = joined(stream.done, first.wait->known);
      } else if (first.record != nullptr) {
        *first.record = {.reached = true, .known = stream.done};
      } else {
        perform(stream, first);
      }
      stream.last = nullptr;
      stream.queue.pop_front();
      machine.grid_event();
    } else if (!first.started) {
      start(stream, 0);
    } else if (first.grid->done()) {
      stream.done = joined(stream.done, first.grid->done_knowledge);
      stream.last = first.grid;
      stream.queue.pop_front();
      machine.grid_event();
    } else {
      break;
    }
  }
  // Programmatic launches behind one that runs.
  for (size_t i = 1; i < stream.queue.size(); ++i) {
    const Operation& before = stream.queue[i - 1];
    const Operation& next = stream.queue[i];
    if (!next.programmatic || next.grid == nullptr || before.grid == nullptr || !before.started ||
        !(before.grid->triggered() || before.grid->done())) {
      break;
    }
    if (!next.started) start(stream, i);
  }
}

void Streams::start(Stream& stream, size_t index) {
  Operation& operation = stream.queue[index];
  Grid& grid = *operation.grid;
  Grid* const before = index > 0 ? stream.queue[index - 1].grid.get() : stream.last.get();
  if (operation.programmatic && before != nullptr) {
    // It may begin as soon as its predecessor's blocks have, so it knows what those knew at their begin and no more.
    grid.base = joined(before->base, operation.host_known);
    grid.early = !before->done();
    if (before->done()) {
      grid.predecessor_done = before->done_knowledge;
    } else {
      grid.predecessor = before;
    }
  } else {
    grid.base = joined(stream.done, operation.host_known);
  }
  operation.started = true;
  Machine::get().start(operation.grid);
}

void Streams::perform(Stream& stream, const Operation& operation) {
  Machine& machine = Machine::get();
  const Transfer& transfer = operation.transfer;
  Allocation* const target = allocation_of(transfer.target);
  Allocation* const source = transfer.source == nullptr ? nullptr : allocation_of(transfer.source);
  const KnowledgePtr base = joined(stream.done, operation.host_known);
  const BlockId id = machine.new_block_ids({nullptr, 1, 1, transfer.name});
  if (machine.checked()) {
    const KnowledgeObserver observer(base);
    if (source != nullptr &&
        !check_runtime_access(id, observer, *source, transfer.source - source->begin, transfer.bytes, false)) {
      return;
    }
    if (target != nullptr &&
        !check_runtime_access(id, observer, *target, transfer.target - target->begin, transfer.bytes, true)) {
      return;
    }
    if (target != nullptr) {
      copy_written(*target, transfer.target - target->begin, source,
                   source == nullptr ? 0 : transfer.source - source->begin, transfer.bytes);
    }
  }
  if (transfer.source == nullptr) {
    std::memset(transfer.target, transfer.value, static_cast<size_t>(transfer.bytes));
  } else {
    std::memmove(transfer.target, transfer.source, static_cast<size_t>(transfer.bytes));
  }
  auto complete = std::make_shared<Knowledge>();
  complete->add_complete(id, id + 1);
  stream.done = joined(base, complete);
}

}  // namespace shardscope::emulation
