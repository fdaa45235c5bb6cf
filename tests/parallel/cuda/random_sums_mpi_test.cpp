// Random collectives under mpirun, in every way of summing, for all numbers of ranks up to the world's: each rank an
// emulated device of its own. Inputs are small integers, so that sums are exact and equality is the test; norms have to
// be the same bits on all ranks. Ranks come late now and then, each in its own way. Ends with 0 only if all ranks'
// checks hold; else says which call of which seed it was.
//
//   random_sums_mpi_test [SEED [CALLS]]
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/base/error.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/cuda/owners.hpp"
#include "parallel/cuda/device_ways.hpp"
#include "tests/emulation/emulation.hpp"
#include "tests/parallel/cuda/random_call.hpp"

namespace shardscope::parallel {
namespace {

/// Random calls among the ranks of a group.
class RandomCalls {
 public:
  /// doing: says where it is.
  RandomCalls(Communicator& host, cudaStream_t stream, DeviceWays& ways, uint32_t seed, std::string& doing)
      : host_(host),
        stream_(stream),
        ways_(ways),
        label_(fmt::format("seed {}, {} ranks", seed, host.size())),
        doing_(doing),
        shared_(seed * 31 + static_cast<uint32_t>(host.size())),
        own_(seed * 131 + static_cast<uint32_t>(host.rank())) {}

  /// Makes at least so many. Collective.
  int64_t make(int64_t calls) {
    int64_t done = 0;
    while (done < calls) {
      doing_ = fmt::format("{}, call {} or later", label_, done + 1);
      done += make_row();
    }
    return done;
  }

 private:
  static int64_t below(std::mt19937& random, int64_t end) {
    return std::uniform_int_distribution<int64_t>(0, end - 1)(random);
  }
  bool one_in(int64_t n) { return below(shared_, n) == 0; }
  /// From 1 to `most`, small ones as often as large ones.
  int64_t size(int64_t most) {
    const double exponent = std::uniform_real_distribution<double>(0, std::log(static_cast<double>(most)))(shared_);
    return std::clamp<int64_t>(std::llround(std::exp(exponent)), 1, most);
  }
  void dawdle() {
    if (below(own_, 3) == 0) std::this_thread::sleep_for(std::chrono::microseconds(below(own_, 300)));
  }

  Plan draw() {
    const auto& all = ways_.ways();
    Plan plan{.way = all[static_cast<size_t>(below(shared_, std::ssize(all)))].get(),
              .dtype = std::array{DType::kF32, DType::kF16, DType::kBF16}[static_cast<size_t>(below(shared_, 3))],
              .salt = below(shared_, 1000)};
    const bool ours = plan.way->name() == "one-shot" || plan.way->name() == "two-shot";
    constexpr int64_t kMost = 2000;  // elements
    if (ours && one_in(6)) {
      plan.kind = Kind::kCandidates;
      plan.dtype = DType::kF32;
      plan.rows = size(100);
    } else if (ours && one_in(3)) {
      plan.kind = Kind::kNorm;
      plan.columns = 2 * size(150);
      plan.rows = size(7);
    } else {
      plan.columns = size(one_in(10) ? 5 * kMost : kMost);
    }
    return plan;
  }

  /// Some calls behind each other, at once or captured and replayed; then what they gave.
  int64_t make_row() {
    std::vector<Call> calls;
    for (int64_t left = 1 + below(shared_, 16); left > 0; --left) {
      calls.emplace_back(draw(), host_.rank(), host_.size());
    }
    const bool captured = one_in(2);
    const int64_t times = captured ? 1 + below(shared_, 3) : 1;
    const auto enqueue = [&](const auto& before_each) {
      for (const Call& call : calls) call.fill(stream_);
      for (const Call& call : calls) {
        before_each();
        call.enqueue();
      }
    };
    cuda::GraphExec graph;
    if (captured) {
      graph = cuda::capture(stream_, [&] { enqueue([] {}); }, {});
    }
    const cuda::Event done = cuda::make_event({});
    for (int64_t time = 0; time < times; ++time) {
      dawdle();
      if (captured) {
        check_cuda(cudaGraphLaunch(graph.get(), stream_), "cudaGraphLaunch");
      } else {
        enqueue([&] { dawdle(); });
      }
    }
    check_cuda(cudaEventRecord(done.get(), stream_), "cudaEventRecord");
    ways_.wait(done.get(), "random sums");
    uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
    for (const Call& call : calls) {
      for (const std::byte byte : call.checked()) hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001B3u;
    }
    expect_same(hash);
    return times * std::ssize(calls);
  }

  /// That all ranks have this hash of their results.
  void expect_same(uint64_t hash) {
    std::vector<uint64_t> all(static_cast<size_t>(host_.size()));
    host_.all_gather(std::as_bytes(std::span(&hash, 1)), std::as_writable_bytes(std::span(all)));
    require(std::all_of(all.begin(), all.end(), [&](uint64_t its) { return its == hash; }),
            "other bits on another rank");
  }

  Communicator& host_;
  cudaStream_t stream_;
  DeviceWays& ways_;
  std::string label_;
  std::string& doing_;
  std::mt19937 shared_;  // what all ranks draw alike
  std::mt19937 own_;
};

int64_t check_group(World& world, int ranks, uint32_t seed, int64_t calls, std::string& doing) {
  const std::unique_ptr<Communicator> host =
      make_communicator(world, {.group_size = ranks, .kind = CommunicatorKind::kMpi, .oversubscribed = true});
  const cuda::Stream stream = cuda::make_stream({});
  const DeviceStream to{.lend = [&] { return stream.get(); }, .own = {}, .programmatic = {}, .device = world.rank()};
  DeviceWays ways(world, *host, to, {.times = true});
  require(ways.ways().size() == 4 && ways.absent().empty(), "not all ways of summing are there");
  return RandomCalls(*host, stream.get(), ways, seed, doing).make(calls);
}

void check_all(World& world, uint32_t seed, int64_t calls, std::string& doing) {
  emulation::Options machine{.seed = seed, .devices = world.size(), .policy = emulation::Policy::kWorker};
  machine.multiprocessors = 2;  // kernels that wait for each other are as wide as the device
  emulation::restart(machine);
  check_cuda(cudaSetDevice(world.rank()), "cudaSetDevice");
  int64_t made = 0;
  for (const int ranks : {1, 2, 3, 4, 5, 7, 8}) {
    if (ranks > world.size()) break;
    doing = fmt::format("seed {}, {} ranks", seed, ranks);
    if (world.rank() < ranks) made += check_group(world, ranks, seed, calls, doing);
    world.barrier("end of a group");
  }
  for (const emulation::Report& report : emulation::take_reports()) require(false, report.message);
  require(emulation::not_given_back().empty(), "something was not given back");
  if (world.rank() == 0) fmt::print("{} calls of seed {} are exact\n", made, seed);
}

}  // namespace
}  // namespace shardscope::parallel

int main(int argc, char** argv) {
  using namespace shardscope;
  const auto number = [&](int at, int otherwise) { return at < argc ? std::atoi(argv[at]) : otherwise; };
  parallel::World world({.use_mpi = true, .timeout = std::chrono::milliseconds(60'000)});
  std::string doing = "at the start";
  try {
    parallel::check_all(world, static_cast<uint32_t>(number(1, 1)), number(2, 100), doing);
  } catch (const parallel::PeerFailure&) {
    world.fail(1, "");
  } catch (const Error& error) {
    world.fail(error.exit_code(), fmt::format("{}: {}", doing, error.what()));
  }
  return 0;
}
