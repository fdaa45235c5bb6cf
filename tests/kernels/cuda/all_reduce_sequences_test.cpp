// Calls of all kinds behind each other on the same inboxes, without a pause and replayed as a graph: what the two
// buffers and the numbers of calls are for. First what may go wrong where something repeats, then whatever comes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <numeric>
#include <random>
#include <thread>

#include "tests/kernels/cuda/peer_calls.hpp"

using namespace shardscope;
using namespace shardscope::test;
using cuda::Shots;
using kernels::DType;

namespace {

/// Everything, of changing length.
void add_all(Sequence& sequence, bool with_norms) {
  sequence.add_sum(Shots::kOne, DType::kBF16, 600);
  sequence.add_sum(Shots::kTwo, DType::kBF16, 601);
  sequence.add_candidates();
  sequence.add_sum(Shots::kTwo, DType::kF32, 1);
  sequence.add_sum(Shots::kTwo, DType::kF16, 5);
  if (with_norms) sequence.add_norm(Shots::kOne);
  sequence.add_sum(Shots::kOne, DType::kF16, 33);
  sequence.add_candidates();
  if (with_norms) sequence.add_norm(Shots::kTwo);
  if (with_norms) sequence.add_norm(Shots::kTwo);
  sequence.add_sum(Shots::kTwo, DType::kF32, 333);
  sequence.add_sum(Shots::kOne, DType::kF32, 1);
  sequence.add_sum(Shots::kTwo, DType::kF16, 17);
  sequence.add_sum(Shots::kTwo, DType::kF16, 600);
}

/// Random calls, in random company: rows of them, captured or not, ranks in any order, with pauses.
class RandomCalls {
 public:
  RandomCalls(const Ranks& ranks, uint64_t seed) : ranks_(ranks), random_(static_cast<uint32_t>(seed)) {}

  /// Makes at least so many.
  void make(size_t calls) {
    while (done_ < calls) below(3) == 0 ? captured_row() : plain_row();
  }

 private:
  static constexpr int64_t kCapacityBytes = 16384;  // as RanksOptions has it

  int64_t below(int64_t end) { return std::uniform_int_distribution<int64_t>(0, end - 1)(random_); }
  bool one_in(int64_t n) { return below(n) == 0; }
  /// From 1 to `most`, small ones as often as large ones; now and then all.
  int64_t size(int64_t most) {
    if (one_in(20)) return most;
    const double exponent = std::uniform_real_distribution<double>(0, std::log(static_cast<double>(most)))(random_);
    return std::clamp<int64_t>(std::llround(std::exp(exponent)), 1, most);
  }

  void add(Sequence& sequence, bool may_be_in_place) {
    const Shots shots = one_in(2) ? Shots::kOne : Shots::kTwo;
    const DType dtype = std::array{DType::kF32, DType::kF16, DType::kBF16}[below(3)];
    const int64_t most = kCapacityBytes / kernels::facts(dtype).block_bytes;
    const bool in_place = may_be_in_place && one_in(2);
    if (one_in(6)) {
      sequence.add_candidates(size(200));
    } else if (one_in(4)) {
      const int64_t columns = size(most / 2);
      // Each row begins with a word of its own.
      const bool whole_words = dtype == DType::kF32 || columns % 2 == 0;
      const int64_t rows = whole_words ? size(std::min<int64_t>(most / columns, 7)) : 1;
      sequence.add_norm(shots, {.dtype = dtype, .rows = rows, .columns = columns, .in_place = in_place});
    } else {
      sequence.add_sum(shots, dtype, one_in(12) ? size(most) : size(600), in_place);
    }
  }

  /// The host's time goes by; on the emulation the devices get some of theirs where a stream is asked.
  void dawdle() {
    if (one_in(8)) std::this_thread::sleep_for(std::chrono::microseconds(below(200)));
    if (!one_in(3)) return;
    const cudaStream_t stream = ranks_.stream(static_cast<int>(below(ranks_.count())));
    for (int64_t times = below(6); times > 0; --times) static_cast<void>(cudaStreamQuery(stream));
  }

  void plain_row() {
    Sequence sequence(ranks_, static_cast<uint32_t>(below(100'000)));
    for (int64_t calls = 1 + below(8); calls > 0; --calls) add(sequence, true);
    std::vector<size_t> next(static_cast<size_t>(ranks_.count()));
    for (size_t left = sequence.size() * next.size(); left > 0; --left) {
      size_t rank = static_cast<size_t>(below(std::ssize(next)));
      while (next[rank] == sequence.size()) rank = (rank + 1) % next.size();
      sequence.enqueue(next[rank]++, static_cast<int>(rank), one_in(2));
      dawdle();
    }
    end(sequence, 1);
  }
  void captured_row() {
    const auto replays = static_cast<uint32_t>(1 + below(3));
    Sequence sequence(ranks_, static_cast<uint32_t>(below(100'000)));
    for (int64_t calls = 1 + below(5); calls > 0; --calls) add(sequence, replays == 1);
    const CapturedCalls captured(ranks_, sequence, one_in(2));
    std::vector<int> order(static_cast<size_t>(ranks_.count()));
    std::iota(order.begin(), order.end(), 0);
    for (uint32_t replay = 0; replay < replays; ++replay) {
      std::shuffle(order.begin(), order.end(), random_);
      for (const int rank : order) {
        captured.launch(rank);
        dawdle();
      }
    }
    end(sequence, replays);
  }
  void end(const Sequence& sequence, uint32_t rounds) {
    sequence.check(rounds, done_);
    done_ += rounds * sequence.size();
  }

  const Ranks& ranks_;
  std::mt19937 random_;
  size_t done_ = 0;
};

}  // namespace

TEST_CASE("cuda peer calls: all kinds behind each other, without a pause") {
  for (const int devices : {2, 3, 8}) {
    under_conditions({.devices = devices, .seeds = devices == 8 ? 2 : 5}, [&] {
      INFO(devices << " ranks");
      const Ranks ranks(devices, {.log_entries = 8});
      Sequence sequence(ranks);
      add_all(sequence, true);
      for (int rank = devices - 1; rank >= 0; --rank) sequence.enqueue_all(rank, false);
      sequence.check();
    });
  }
}

TEST_CASE("cuda peer calls: all kinds, each allowed to start early") {
  under_conditions({.devices = 3}, [] {
    const Ranks ranks(3);
    Sequence sequence(ranks);
    add_all(sequence, true);
    for (int rank = 0; rank < 3; ++rank) sequence.enqueue_all(rank, true);
    sequence.check();
  });
}

TEST_CASE("cuda peer calls: a captured sequence, replayed with other data") {
  for (const bool programmatic : {false, true}) {
    under_conditions({.devices = 2, .seeds = 3}, [&] {
      const Ranks ranks(2);
      Sequence sequence(ranks);
      add_all(sequence, false);  // an odd number of calls: they change buffers from replay to replay
      const CapturedCalls captured(ranks, sequence, programmatic);
      for (uint32_t replay = 1; replay <= 3; ++replay) {
        for (int rank = 0; rank < 2; ++rank) captured.launch(rank);
        sequence.check(replay);
        sequence.change_sums();
      }
    });
  }
}

// What is the same in every call may hide a word that is taken for new: here everything but the data repeats.
TEST_CASE("cuda peer calls: the same call many times, with other data") {
  under_conditions({.devices = 4, .seeds = 3}, [] {
    const Ranks ranks(4);
    for (const Shots shots : {Shots::kOne, Shots::kTwo}) {
      Sequence sequence(ranks);
      constexpr size_t kCalls = 12;
      for (size_t i = 0; i < kCalls; ++i) sequence.add_sum(shots, DType::kF16, 70);
      for (int rank = 0; rank < 4; ++rank) sequence.enqueue_all(rank, false);
      sequence.check(1, shots == Shots::kOne ? 0 : kCalls);
    }
  });
}

// Thousands over all numbers of ranks and both modes of the emulation. To repeat one: SHARDSCOPE_SEED.
TEMPLATE_TEST_CASE_SIG("cuda peer calls: random ones, with random pauses, ranks", "", ((int kDevices), kDevices), 1, 2,
                       3, 4, 5, 7, 8) {
  const Conditions conditions{.devices = kDevices, .multiprocessors = kDevices % 2 == 0 ? 132 : 16, .seeds = 6};
  under_each_seed(conditions, [&](uint64_t seed) {
    INFO(kDevices << " ranks");
    const Ranks ranks(kDevices, {.log_entries = 4});
    RandomCalls(ranks, 100 * seed + static_cast<uint64_t>(kDevices)).make(30);
  });
}
