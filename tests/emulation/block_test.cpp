// Blocks and grids of the emulation: shapes, barriers that vote, asynchronous copies, atomics, blocks that wait for
// each other, and the orders in which threads run.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "tests/emulation/orders.hpp"
#include "tests/emulation/probes/probes.hpp"

namespace shardscope::test {
namespace {

std::vector<unsigned> recorded_order(uint64_t seed, unsigned blocks, unsigned threads) {
  emulation::restart({.seed = seed});
  Stand stand;
  auto* const counter = stand.zeros<unsigned>(1);
  auto* const order = stand.unwritten<unsigned>(blocks * threads);
  stand.note(probes::record_order(blocks, threads, counter, order, nullptr));
  std::vector<unsigned> trace = stand.download(order, blocks * threads);
  CHECK(stand.error() == cudaSuccess);
  return trace;
}

}  // namespace

TEST_CASE("grid: every thread of every shape runs once and knows where it is") {
  const std::pair<dim3, dim3> shape = GENERATE(values<std::pair<dim3, dim3>>({
      {dim3(1), dim3(1)},
      {dim3(3), dim3(1)},
      {dim3(2), dim3(33)},
      {dim3(5), dim3(7)},
      {dim3(2), dim3(1024)},
      {dim3(3, 2, 4), dim3(4, 3, 5)},
      {dim3(1, 5, 1), dim3(2, 1, 64)},
      {dim3(2, 1, 3), dim3(1, 1024, 1)},
  }));
  const auto [grid, block] = shape;
  const size_t count = static_cast<size_t>(grid.x) * grid.y * grid.z * block.x * block.y * block.z;
  under_orders([&](Stand& stand) {
    auto* const out = stand.unwritten<uint32_t>(count + 1);
    stand.note(cudaMemset(out, 0xFF, (count + 1) * sizeof(uint32_t)));
    stand.note(probes::identify(grid, block, out));
    const std::vector<uint32_t> ids = stand.download(out, count + 1);
    std::vector<uint32_t> expected(count);
    std::iota(expected.begin(), expected.end(), 0u);
    expected.push_back(0xFFFFFFFFu);
    CHECK(ids == expected);
  });
}

TEST_CASE("barrier: or, and and count of all threads' predicates") {
  const unsigned threads = GENERATE(1u, 33u, 96u, 1024u);
  for (const unsigned true_ones : {0u, 1u, threads / 2, threads}) {
    INFO(threads << " threads, " << true_ones << " predicates");
    std::vector<int> predicates(threads, 0);
    for (unsigned i = 0; i < true_ones; ++i) predicates[(i * 7 + 3) % threads] += 1 << (i % 9);
    const auto count = std::count_if(predicates.begin(), predicates.end(), [](int p) { return p != 0; });
    under_orders([&](Stand& stand) {
      auto* const results = stand.unwritten<probes::BarrierVotes>(threads);
      stand.note(probes::barrier_votes(threads, stand.upload(predicates), results));
      const auto all_votes = stand.download(results, threads);
      const auto right = [&](const probes::BarrierVotes& votes) {
        return (votes.any != 0) == (count > 0) && (votes.all != 0) == (count == threads) && votes.count == count;
      };
      CHECK(std::all_of(all_votes.begin(), all_votes.end(), right));
    });
  }
}

TEST_CASE("cp.async: a wait leaves the last groups pending and completes those before") {
  for (int pending = 0; pending <= 3; ++pending) {
    for (int group = 0; group < 3; ++group) {
      INFO("wait_group " << pending << ", group " << group << " read");
      for (uint64_t seed = 0; seed <= 5; ++seed) {
        emulation::restart({.seed = seed});
        Stand stand;
        const int* const values = stand.counting<int>(3 * 32 * 4);
        int* const out = stand.unwritten<int>(32);
        stand.note(probes::copy_groups(pending, group, values, out));
        std::vector<int> expected(32);
        for (int lane = 0; lane < 32; ++lane) expected[static_cast<size_t>(lane)] = (group * 32 + lane) * 4;
        const std::vector<int> actual = stand.download(out, 32);
        const std::vector<emulation::Report> reports = emulation::take_reports();
        if (group < 3 - pending) {
          CHECK(reports.empty());
          CHECK(actual == expected);
        } else if (emulation::checked()) {
          REQUIRE(reports.size() == 1);
          CHECK(reports[0].fault == emulation::Fault::kUninitialised);
        } else {
          CHECK(actual != expected);
        }
      }
    }
  }
}

TEST_CASE("cp.async: a copy that is not valid writes zeros and reads nothing") {
  under_orders([](Stand& stand) {
    const int* const values = stand.unwritten<int>(4);  // 16 bytes for 32 lanes: reading them would be an error
    int* const out = stand.unwritten<int>(32 * 4);
    stand.note(probes::copy_nothing(values, out));
    CHECK(stand.download(out, 32 * 4) == std::vector<int>(32 * 4, 0));
  });
}

TEST_CASE("atomics: nothing is lost between threads and blocks") {
  constexpr unsigned kBlocks = 5;
  constexpr unsigned kThreads = 33;
  constexpr unsigned kAll = kBlocks * kThreads;
  under_orders([&](Stand& stand) {
    probes::AtomicResults begin{};
    begin.smallest = 1000;
    begin.signed_largest = -1000;
    begin.signed_smallest = 1000;
    begin.multiplied = 1;
    auto* const results = stand.upload(std::vector<probes::AtomicResults>{begin});
    auto* const olds = stand.unwritten<unsigned>(kAll);
    stand.note(probes::atomics(kBlocks, kThreads, results, olds));
    const probes::AtomicResults actual = stand.first(results);
    CHECK(actual.sum == kAll);
    CHECK(actual.signed_sum == -static_cast<int>(kAll * (kAll - 1) / 2));
    CHECK(actual.float_sum == 0.5f * kAll);
    CHECK(actual.largest == kAll - 1);
    CHECK(actual.smallest == 3);
    CHECK(actual.signed_largest == -1);
    CHECK(actual.signed_smallest == -static_cast<int>(kAll - 1));
    CHECK(actual.largest_wide == (1ull << 40) + kAll - 1);
    unsigned long long xored = 0;
    for (unsigned i = 0; i < kAll; ++i) xored ^= ((1ull << 40) + 1) << (i % 16);
    CHECK(actual.xored_wide == xored);
    uint32_t power = 1;
    for (unsigned i = 0; i < kAll; ++i) power *= 3;
    CHECK(actual.multiplied == power);
    CHECK(actual.exchanged_sum + actual.exchanged == kAll * (kAll + 1) / 2);
    CHECK(actual.system_sum == 2 * kAll);

    std::vector<unsigned> returned = stand.download(olds, kAll);
    std::sort(returned.begin(), returned.end());
    std::vector<unsigned> expected(kAll);
    std::iota(expected.begin(), expected.end(), 0u);
    CHECK(returned == expected);
  });
}

TEST_CASE("grid: resident blocks that wait for each other go on") {
  under_orders([](Stand& stand) {
    auto* const flags = stand.zeros<uint32_t>(2);
    auto* const out = stand.unwritten<uint32_t>(2);
    stand.note(probes::ping_pong_blocks(50, flags, out));
    CHECK(stand.download(out, 2) == std::vector<uint32_t>{50, 50});
  });
}

TEST_CASE("grid: more threads at once than a process may have mappings for") {
  emulation::restart({});
  Stand stand;
  stand.note(probes::meet(33, 1024, stand.zeros<unsigned>(1)));
  stand.finish();
  CHECK(stand.error() == cudaSuccess);
  CHECK(unread_reports() == "");
}

TEST_CASE("local memory: an array of 160,000 bytes") {
  emulation::restart({});
  Stand stand;
  int* const out = stand.unwritten<int>(32);
  stand.note(probes::large_local_array(out));
  std::vector<int> lanes(32);
  std::iota(lanes.begin(), lanes.end(), 0);
  CHECK(stand.download(out, 32) == lanes);
  CHECK(unread_reports() == "");
}

#ifndef __SANITIZE_ADDRESS__  // which gives each thread less, and then says so itself
TEST_CASE("local memory: half a megabyte is there, and more than a megabyte is reported, with the thread") {
  emulation::restart({});
  Stand stand;
  int* const out = stand.unwritten<int>(32);
  stand.note(probes::recurse(31, out));
  CHECK(stand.download(out, 32) == std::vector<int>(32, 31));
  CHECK(unread_reports() == "");

  for (const uint64_t seed : {0u, 1u, 2u}) {
    INFO("seed " << seed);
    emulation::restart({.seed = seed});
    Stand deep;
    deep.note(probes::recurse(66, deep.unwritten<int>(32)));
    deep.finish();
    CHECK(deep.error() == cudaErrorLaunchFailure);
    const std::vector<emulation::Report> reports = emulation::take_reports();
    REQUIRE(reports.size() == 1);
    CHECK(reports[0].fault == emulation::Fault::kForeignLocal);
    CHECK(reports[0].message.find("of block (0,0,0)") != std::string::npos);
  }

  emulation::restart({});  // the stacks that were written over are in order again
  Stand after;
  after.note(probes::meet(33, 1024, after.zeros<unsigned>(1)));
  after.finish();
  CHECK(after.error() == cudaSuccess);
  CHECK(unread_reports() == "");
}
#endif

TEST_CASE("order: without a seed as numbered, a seed gives the same order again, another seed another one") {
  constexpr unsigned kBlocks = 6;
  constexpr unsigned kThreads = 40;
  std::vector<unsigned> numbered(kBlocks * kThreads);
  std::iota(numbered.begin(), numbered.end(), 0u);
  CHECK(recorded_order(0, kBlocks, kThreads) == numbered);

  std::set<std::vector<unsigned>> different = {numbered};
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    INFO("seed " << seed);
    const std::vector<unsigned> order = recorded_order(seed, kBlocks, kThreads);
    CHECK(recorded_order(seed, kBlocks, kThreads) == order);
    CHECK(different.insert(order).second);
    std::vector<unsigned> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    CHECK(sorted == numbered);
  }
}

TEST_CASE("order: a seed lets blocks run at the same time") {
  constexpr unsigned kBlocks = 6;
  constexpr unsigned kThreads = 40;
  int interleaved = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const std::vector<unsigned> order = recorded_order(seed, kBlocks, kThreads);
    unsigned changes = 0;  // of the block between one thread and the next
    for (size_t i = 1; i < order.size(); ++i) changes += order[i] / kThreads != order[i - 1] / kThreads ? 1u : 0u;
    if (changes >= kBlocks) ++interleaved;
  }
  CHECK(interleaved > 0);
}

}  // namespace shardscope::test
