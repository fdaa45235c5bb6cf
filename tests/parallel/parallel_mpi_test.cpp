// Every collective of every communicator under mpirun, for any number of ranks. Inputs are small integers, so that sums
// are exact and equality is the test; a second kind of input checks that all ranks hold the same bits. Ends with 0 only
// if all ranks' checks hold.
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <thread>

#include "kernels/base/error.hpp"
#include "parallel/communicator.hpp"

namespace {

std::atomic<int64_t> allocations{0};

}  // namespace

void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace shardscope::parallel {
namespace {

/// Decorator: comes late now and then, each rank in its own way.
class LateCommunicator final : public Communicator {
 public:
  LateCommunicator(Communicator& inner, World& world) : inner_(inner), random_(world.rank() + 17) {}
  std::string_view name() const override { return inner_.name(); }
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  using Communicator::all_reduce;
  void all_reduce(std::span<float> data) override {
    come_late();
    inner_.all_reduce(data);
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    come_late();
    inner_.all_gather(mine, all);
  }
  void broadcast(std::span<std::byte> data, int root) override {
    come_late();
    inner_.broadcast(data, root);
  }
  void barrier() override {
    come_late();
    inner_.barrier();
  }

 private:
  void come_late() {
    const auto dice = random_() % 64;
    if (dice == 0) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 300));
    if (dice == 1) sched_yield();
  }

  Communicator& inner_;
  std::minstd_rand random_;
};

std::string label(const Communicator& communicator, const char* call, int64_t count, int round) {
  return std::string(communicator.name()) + " " + call + " of " + std::to_string(count) + ", round " +
         std::to_string(round);
}

float input(int rank, int64_t index, int round) {
  return static_cast<float>((index * 7 + rank * 13 + round * 5) % 101 - 50);
}

void check_all_reduce(Communicator& communicator, int64_t count, int round, std::vector<float>& data) {
  data.resize(count);
  for (int64_t i = 0; i < count; ++i) data[i] = input(communicator.rank(), i, round);
  communicator.all_reduce(data);
  for (int64_t i = 0; i < count; ++i) {
    float expected = 0;
    for (int rank = 0; rank < communicator.size(); ++rank) expected += input(rank, i, round);
    if (!(data[i] == expected)) throw BugError(label(communicator, "all_reduce", count, round));
  }
}

/// Numbers whose sum depends on the order: the ranks' results must still agree to the bit, and be in rank order.
void check_rank_order(Communicator& communicator, int64_t count) {
  const auto value = [](int rank, int64_t i) {
    return static_cast<float>(i % 97 + 1) * (rank % 2 == 0 ? 1e7f : -0.9e7f) / static_cast<float>(rank * 3 + 7);
  };
  std::vector<float> data(count);
  for (int64_t i = 0; i < count; ++i) data[i] = value(communicator.rank(), i);
  communicator.all_reduce(data);
  for (int64_t i = 0; i < count; ++i) {
    float expected = value(0, i);
    for (int rank = 1; rank < communicator.size(); ++rank) expected += value(rank, i);
    if (std::memcmp(&data[i], &expected, sizeof expected) != 0) throw BugError(label(communicator, "order", count, 0));
  }
}

void check_all_gather(Communicator& communicator, int64_t count, int round) {
  std::vector<float> mine(count);
  for (int64_t i = 0; i < count; ++i) mine[i] = input(communicator.rank(), i, round);
  std::vector<float> all(count * communicator.size());
  communicator.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  for (int rank = 0; rank < communicator.size(); ++rank) {
    for (int64_t i = 0; i < count; ++i) {
      if (!(all[rank * count + i] == input(rank, i, round)))
        throw BugError(label(communicator, "all_gather", count, round));
    }
  }
}

void check_broadcast(Communicator& communicator, int64_t count, int round) {
  const int root = round % communicator.size();
  std::vector<float> data(count);
  for (int64_t i = 0; i < count; ++i) data[i] = input(communicator.rank(), i, round);
  communicator.broadcast(std::as_writable_bytes(std::span(data)), root);
  for (int64_t i = 0; i < count; ++i) {
    if (!(data[i] == input(root, i, round))) throw BugError(label(communicator, "broadcast", count, round));
  }
}

int rounds_for(int64_t count, int size) {
  const int busy = size > 2 ? 4 : 1;  // more ranks than this machine may have cores
  return std::max(3, static_cast<int>((count <= 577 ? 3000 : 600'000 / count) / busy));
}

void check_communicator(World& world, CommunicatorKind kind, int group_size, bool oversubscribed, int first_rank = 0) {
  const auto plain = make_communicator(world, {.group_size = group_size,
                                               .kind = kind,
                                               .max_floats = 50'000,
                                               .oversubscribed = oversubscribed,
                                               .first_rank = first_rank});
  require(plain->size() == group_size && plain->rank() == world.rank() - first_rank,
          "a group's ranks count from its first");
  LateCommunicator late(*plain, world);
  std::vector<float> data;
  for (int64_t count : {0, 1, 3, 576, 577, 4096, 8192, 100'001}) {
    for (int round = 0; round < rounds_for(count, group_size); ++round) {
      check_all_reduce(late, count, round, data);
      world.progress("checking all-reduce");
      if (round % 16 != 0) continue;
      check_all_gather(late, count, round);
      check_broadcast(late, count, round);
      late.barrier();
    }
    check_rank_order(late, count);
  }

  data.resize(8192);
  const int64_t before = allocations;
  for (int i = 0; i < 50; ++i) plain->all_reduce(data);
  plain->broadcast(std::as_writable_bytes(std::span(data)), 0);
  plain->barrier();
  if (allocations != before) throw BugError(label(*plain, "calls allocate", allocations - before, 0));
}

/// What nobody may pass before all have come.
void check_barrier(World& world) {
  for (int round = 0; round < 20; ++round) {
    if (round % world.size() == world.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::vector<double> before = world.all_gather(std::vector<double>{round * 1.0}, "testing");
    for (double value : before) require(value == round, "World::all_gather mixes rounds");
    world.barrier("testing");
  }
}

void check_world(World& world) {
  require(world.host_size() == world.size() && world.one_host(), "World: these ranks share a host");
  require(static_cast<int>(world.hosts().size()) == world.size(), "World: a host name of each rank");
  require(!world.mpi_version().empty(), "World: MPI has a version");
  const int last = world.size() - 1;
  require(world.broadcast_text(world.rank() == last ? "from the last" : "?", last, "testing") == "from the last",
          "World::broadcast_text");
  require(world.broadcast_text("", 0, "testing").empty(), "World::broadcast_text: empty");
  const std::vector<std::string> texts = world.all_gather_text(std::string(world.rank(), 'x'), "testing");
  for (int rank = 0; rank < world.size(); ++rank) {
    require(texts[rank] == std::string(rank, 'x'), "World::all_gather_text");
  }
  check_barrier(world);
}

void check_all(World& world) {
  check_world(world);
  for (int group_size = 1; group_size <= world.size(); ++group_size) {
    if (group_size != world.size() && group_size != 2 && group_size != world.size() - 1) continue;
    if (world.rank() < group_size) {
      for (CommunicatorKind kind : {CommunicatorKind::kShm, CommunicatorKind::kMpi, CommunicatorKind::kAuto}) {
        check_communicator(world, kind, group_size, group_size > 2);
      }
      check_communicator(world, CommunicatorKind::kShm, group_size, group_size <= 2);
    }
    world.barrier("group of " + std::to_string(group_size));
  }
}

/// Groups of two beside each other, all at once, and what those before them make is not theirs.
void check_groups_at_once(World& world) {
  const int first = world.rank() / 2 * 2;
  if (first + 2 <= world.size()) {
    for (CommunicatorKind kind : {CommunicatorKind::kShm, CommunicatorKind::kMpi, CommunicatorKind::kAuto}) {
      check_communicator(world, kind, 2, world.size() > 2, first);
    }
  }
  world.barrier("groups at once");
}

}  // namespace
}  // namespace shardscope::parallel

int main() {
  using namespace shardscope;
  parallel::World world({.use_mpi = true, .timeout = std::chrono::milliseconds(20'000)});
  try {
    parallel::check_all(world);
    parallel::check_groups_at_once(world);
  } catch (const parallel::PeerFailure&) {
    world.fail(1, "");
  } catch (const Error& error) {
    world.fail(error.exit_code(), error.what());
  }
  if (world.rank() == 0) std::puts("all checks hold");
  return 0;
}
