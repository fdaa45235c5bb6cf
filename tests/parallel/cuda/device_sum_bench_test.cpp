// DeviceSumBench: what it checks and times of each way of summing. Ranks in processes, on the emulation.
#include "parallel/cuda/device_sum_bench.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>

#include "parallel/cuda/sum_timer.hpp"
#include "tests/parallel/cuda/peer_member.hpp"
#include "tests/parallel/cuda/sums.hpp"

namespace shardscope::test {
namespace {

using parallel::CommunicatorKind;

/// Says that it sums, and leaves every element as it was, zero, or NaN.
class LyingSum final : public parallel::DeviceSum {
 public:
  enum class Lie : uint8_t { kNothing, kZeros, kNaN };
  LyingSum(cudaStream_t stream, Lie lie) : stream_(stream), lie_(lie) {}
  std::string_view name() const override { return "lying"; }
  int64_t most_bytes() const override { return 64; }  // in pieces
  void all_reduce(void* data, int64_t count, DType dtype) override {
    if (lie_ == Lie::kNothing) return;
    const auto bytes = static_cast<size_t>(count * kernels::facts(dtype).block_bytes);
    cuda::check_cuda(cudaMemsetAsync(data, lie_ == Lie::kZeros ? 0 : 0xFF, bytes, stream_), "cudaMemsetAsync");
  }
  void check() override {}
  void abort() noexcept override {}

 private:
  cudaStream_t stream_;
  Lie lie_;
};

/// Is late after each meeting.
class LateCommunicator final : public parallel::Communicator {
 public:
  LateCommunicator(Rank& rank, std::chrono::milliseconds delay) : to_(rank), delay_(delay) {}
  std::string_view name() const override { return to_.name(); }
  int rank() const override { return to_.rank(); }
  int size() const override { return to_.size(); }
  using Communicator::all_reduce;
  void all_reduce(std::span<float> data) override { to_.all_reduce(data); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override { to_.all_gather(mine, all); }
  void broadcast(std::span<std::byte> data, int root) override { to_.broadcast(data, root); }
  void barrier() override {
    to_.barrier();
    std::this_thread::sleep_for(delay_);
  }

 private:
  ProcessCommunicator to_;
  std::chrono::milliseconds delay_;
};

}  // namespace

TEST_CASE("wrong_elements: finds every element of a sum that was not made, on every rank, in graphs and out of them") {
  emulation::restart({});
  const cuda::Stream stream = cuda::make_stream({});
  const parallel::DeviceStream to{.lend = [&] { return stream.get(); }, .own = {}, .programmatic = {}, .device = 0};
  constexpr int64_t kCount = 37;
  const cuda::DeviceBuffer memory(kCount * 4, "a message", {});
  const auto wait = [](cudaEvent_t event, const char*) { cuda::check_cuda(cudaEventSynchronize(event), "wait"); };
  for (const auto lie : {LyingSum::Lie::kNothing, LyingSum::Lie::kZeros, LyingSum::Lie::kNaN}) {
    LyingSum way(stream.get(), lie);
    for (const DType dtype : kTypes) {
      for (const int ranks : {2, 7, 8}) {
        for (int rank = 0; rank < ranks; ++rank) {
          for (const bool graph : {false, true}) {
            CAPTURE(kernels::facts(dtype).name, ranks, rank, graph);
            CHECK(parallel::wrong_elements(way, {memory.data(), kCount, dtype}, rank, ranks, graph, to, wait) ==
                  3 * kCount);
          }
        }
      }
    }
  }
  LyingSum alone(stream.get(), LyingSum::Lie::kNothing);  // is right for one rank
  CHECK(parallel::wrong_elements(alone, {memory.data(), kCount, DType::kF16}, 0, 1, true, to, wait) == 0);
  CHECK(emulation::take_reports().empty());
}

TEST_CASE("device sum bench: each way is right and has times, in graphs and out of them") {
  constexpr int kRanks = 2;
  const BoardPages pages(kRanks);
  in_processes(kRanks, peers_machine(kRanks), [&](Rank& rank) {
    Member member(rank, pages);
    const std::unique_ptr<cuda::CudaBackend> backend =
        cuda::make_backend({.device = rank.rank(), .scratch_bytes = 1 << 20});
    parallel::DeviceSumBench bench(member.world(), std::make_unique<ProcessCommunicator>(rank), *backend,
                                   std::array{CommunicatorKind::kAuto}, false);
    rank.expect(bench.on_devices() && bench.ways().size() == 4, std::to_string(bench.ways().size()) + " ways");
    for (const parallel::SumBench::Way& way : bench.ways()) {
      rank.expect(way.why_not.empty(), way.name + ": " + way.why_not);
      for (const bool graph : {true, false}) {
        const parallel::SumTimes times = bench.time(
            {.way = way.name, .count = 129, .dtype = DType::kF16, .graph = graph, .samples = 2, .warm_up = 1});
        rank.expect(times.wrong == 0, way.name + ": wrong sums");
        rank.expect(times.sample_us.size() == 2 && times.sample_us.front() > 0, way.name + ": samples");
        rank.expect(times.inside_us.size() == 40, way.name + ": " + std::to_string(times.inside_us.size()) + " calls");
        rank.expect(std::all_of(times.inside_us.begin(), times.inside_us.end(), [](double us) { return us >= 0; }),
                    way.name + ": times inside");
        const bool ours = way.name == "one-shot" || way.name == "two-shot";
        rank.expect(times.own_wait_us.size() == (ours ? times.inside_us.size() : 0), way.name + ": own waits");
        for (size_t call = 0; call < times.own_wait_us.size(); ++call) {
          rank.expect(times.own_wait_us[call] >= 0 && times.own_wait_us[call] <= times.inside_us[call],
                      way.name + ": a wait within the call");
        }
      }
    }
  });
}

TEST_CASE("device sum bench: a rank that comes late shows in the others' own wait, and nowhere else") {
  constexpr int kRanks = 3;
  constexpr int kLate = 1;
  constexpr std::chrono::milliseconds kDelay{400};
  constexpr double kDelayUs = 1e3 * kDelay.count();
  const BoardPages pages(kRanks);
  in_processes(kRanks, peers_machine(kRanks), [&](Rank& rank) {
    Member member(rank, pages);
    const std::unique_ptr<cuda::CudaBackend> backend =
        cuda::make_backend({.device = rank.rank(), .scratch_bytes = 1 << 20});
    const bool late = rank.rank() == kLate;
    const auto delay = late ? kDelay : std::chrono::milliseconds(0);
    parallel::DeviceSumBench bench(member.world(), std::make_unique<LateCommunicator>(rank, delay), *backend,
                                   std::array{CommunicatorKind::kOneShot, CommunicatorKind::kTwoShot}, false);
    for (const char* const way : {"one-shot", "two-shot"}) {
      const parallel::SumTimes times =
          bench.time({.way = way, .count = 70, .dtype = DType::kF32, .graph = true, .samples = 1, .warm_up = 0});
      // The calls follow a meeting: the first of them waits for the late rank, the others for nobody.
      rank.expect(times.own_wait_us.size() == 20, "20 calls");
      const double first = times.own_wait_us[0];
      const std::string text = std::string(way) + ": the first call's wait is " + std::to_string(first) + " us";
      rank.expect(late ? first < kDelayUs / 2 : first > kDelayUs / 2, text);
      rank.expect(times.inside_us[0] - first < kDelayUs / 2, text + ", its exchange is as long");
      const double last = times.own_wait_us.back();
      rank.expect(last < kDelayUs / 2, std::string(way) + ": the last call's wait is " + std::to_string(last) + " us");
    }
  });
}

}  // namespace shardscope::test
