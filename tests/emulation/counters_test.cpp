// What the checked mode counts, against numbers counted by hand: accesses, bytes by class of allocation, sectors of
// global memory and passes over the banks of shared memory for each shape of access.
#include <catch2/catch.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/emulation/counters.hpp"
#include "tests/emulation/orders.hpp"
#include "tests/emulation/probes/probes.hpp"

namespace shardscope::test {
namespace {

using emulation::KernelCounters;
using emulation::Requests;
using emulation::Traffic;

/// What the kernel whose name contains `name` did since the last clear; a failed check if there is none.
KernelCounters counters_of(std::string_view name) {
  for (const KernelCounters& counters : emulation::counters()) {
    if (counters.kernel.find(name) != std::string::npos) return counters;
  }
  FAIL_CHECK("no counters of " << name);
  return {};
}

void check(const Requests& actual, int64_t requests, int64_t units, int64_t ideal_units) {
  CHECK(actual.requests == requests);
  CHECK(actual.units == units);
  CHECK(actual.ideal_units == ideal_units);
}

/// One warp loads a word a lane, at first + lane * stride words, and stores them side by side.
KernelCounters word_counters(int first, int stride) {
  emulation::restart({.count_requests = true});
  Stand stand;
  const uint32_t* const in = stand.counting<uint32_t>(32 * 32 + 64);
  uint32_t* const out = stand.unwritten<uint32_t>(32);
  stand.note(probes::copy_words(1, first, stride, in, 0, out));
  const std::vector<uint32_t> copied = stand.download(out, 32);
  CHECK(copied[31] == static_cast<uint32_t>(first + 31 * stride));
  CHECK(unread_reports() == "");
  return counters_of("copy_words");
}

KernelCounters shared_counters(int write_stride, int read_stride) {
  emulation::restart({.count_requests = true});
  Stand stand;
  uint32_t* const out = stand.unwritten<uint32_t>(32);
  stand.note(probes::shared_strides(write_stride, read_stride, out));
  stand.finish();
  CHECK(unread_reports() == "");
  return counters_of("shared_strides");
}

}  // namespace

TEST_CASE("counters: launches are counted in both modes, accesses in the checked one") {
  emulation::restart({});
  Stand stand;
  int* const words = stand.zeros<int>(4);
  for (int i = 0; i < 3; ++i) stand.note(probes::add(words, i, words + 1, nullptr));
  stand.finish();
  const KernelCounters counters = counters_of("add_kernel");
  CHECK(counters.launches == 3);
  CHECK(counters.accesses == (emulation::checked() ? 6 : 0));
  emulation::clear_counters();
  CHECK(emulation::counters().empty());
}

TEST_CASE("counters: accesses and bytes by class are those of the kernel, exactly") {
  if (!emulation::checked()) return;
  under_orders([](Stand& stand) {
    emulation::clear_counters();
    const uint32_t* const in = stand.counting<uint32_t>(5 * 32);
    uint32_t* const out = stand.unwritten<uint32_t>(5 * 32);
    emulation::label(in, "weights");
    stand.note(probes::copy_words(5, 0, 1, in, 32, out));
    CHECK(stand.download(out, 5 * 32).back() == 159);
    const KernelCounters counters = counters_of("copy_words");
    CHECK(counters.accesses == 2 * 5 * 32);
    REQUIRE(counters.bytes.count("weights") == 1);
    CHECK(counters.bytes.at("weights").loaded_bytes == 5 * 32 * 4);
    CHECK(counters.bytes.at("weights").stored_bytes == 0);
    REQUIRE(counters.bytes.count("unlabelled") == 1);
    CHECK(counters.bytes.at("unlabelled").loaded_bytes == 0);
    CHECK(counters.bytes.at("unlabelled").stored_bytes == 5 * 32 * 4);
    CHECK(counters.bytes.count("shared") == 0);
  });
}

TEST_CASE("counters: a wide access is one access of 16 bytes, in whatever order its lanes come") {
  if (!emulation::checked()) return;
  under_orders(
      [](Stand& stand) {
        uint32_t* const out = stand.unwritten<uint32_t>(32 * 4);
        stand.note(probes::shared_wide(out));
        CHECK(stand.download(out, 32 * 4).back() == 127);
        const KernelCounters counters = counters_of("shared_wide");
        CHECK(counters.accesses == 3 * 32);  // stored to and loaded from shared memory, stored to global memory
        CHECK(counters.bytes.at("shared").loaded_bytes == 512);
        CHECK(counters.bytes.at("shared").stored_bytes == 512);
        CHECK(counters.bytes.at("unlabelled").stored_bytes == 512);
        check(counters.shared_accesses, 2, 8, 8);  // 128 bytes a pass
        check(counters.global_stores, 1, 16, 16);
      },
      {.count_requests = true});
}

TEST_CASE("counters: sectors of a warp's loads, side by side, shifted, strided and all the same") {
  if (!emulation::checked()) return;
  {
    INFO("side by side");
    const KernelCounters counters = word_counters(0, 1);
    check(counters.global_loads, 1, 4, 4);
    check(counters.global_stores, 1, 4, 4);
  }
  {
    INFO("shifted by a word: a sector more");
    check(word_counters(1, 1).global_loads, 1, 5, 4);
  }
  {
    INFO("every second word");
    check(word_counters(0, 2).global_loads, 1, 8, 4);
  }
  {
    INFO("a word of each sector");
    check(word_counters(0, 8).global_loads, 1, 32, 4);
  }
  {
    INFO("a column of rows of 128 bytes");
    check(word_counters(3, 32).global_loads, 1, 32, 4);
  }
  {
    INFO("all lanes the same word");
    check(word_counters(7, 0).global_loads, 1, 1, 1);
  }
}

TEST_CASE("counters: each turn of a loop is a request of its own") {
  if (!emulation::checked()) return;
  emulation::restart({.count_requests = true});
  Stand stand;
  const uint32_t* const in = stand.counting<uint32_t>(4 * 33);
  uint32_t* const out = stand.unwritten<uint32_t>(4 * 32);
  stand.note(probes::copy_words(4, 0, 1, in, 33, out));
  stand.finish();
  // The rounds begin at the words 0, 33, 66 and 99: all but the first touch five sectors.
  const KernelCounters counters = counters_of("copy_words");
  check(counters.global_loads, 4, 4 + 5 + 5 + 5, 16);
  check(counters.global_stores, 4, 16, 16);
}

TEST_CASE("counters: sectors of 16 bytes a lane") {
  if (!emulation::checked()) return;
  emulation::restart({.count_requests = true});
  Stand stand;
  const uint32_t* const in = stand.counting<uint32_t>(32 * 4);
  uint32_t* const out = stand.unwritten<uint32_t>(32 * 4);
  stand.note(probes::copy_wide(in, out));
  CHECK(stand.download(out, 32 * 4).back() == 127);
  const KernelCounters counters = counters_of("copy_wide");
  CHECK(counters.accesses == 64);
  check(counters.global_loads, 1, 16, 16);
  check(counters.global_stores, 1, 16, 16);
}

TEST_CASE("counters: passes over the banks of shared memory") {
  if (!emulation::checked()) return;
  check(shared_counters(1, 1).shared_accesses, 2, 1 + 1, 2);      // no conflict
  check(shared_counters(2, 2).shared_accesses, 2, 2 + 2, 2);      // two lanes a bank
  check(shared_counters(32, 32).shared_accesses, 2, 32 + 32, 2);  // all lanes one bank
  check(shared_counters(1, 0).shared_accesses, 2, 1 + 1, 2);      // a broadcast is one pass
  check(shared_counters(31, 31).shared_accesses, 2, 1 + 1, 2);    // an odd stride spreads over all banks
}

TEST_CASE("counters: a structure of 18 bytes and a copy of any size are seen whole") {
  if (!emulation::checked()) return;
  emulation::restart({});
  Stand stand;
  std::vector<probes::Block18> blocks(50);
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i].nibbles[15] = static_cast<uint8_t>(i);
  const auto* const in = stand.upload(blocks);
  auto* const out = stand.unwritten<probes::Block18>(blocks.size());
  stand.note(probes::copy_blocks(50, in, out));
  CHECK(stand.download(out, blocks.size())[49].nibbles[15] == 49);
  Traffic traffic = counters_of("copy_blocks").bytes.at("unlabelled");
  CHECK(traffic.loaded_bytes == 50 * 18);
  CHECK(traffic.stored_bytes == 50 * 18);

  const auto* const bytes = stand.counting<uint8_t>(100);
  auto* const copied = stand.unwritten<uint8_t>(100);
  stand.note(probes::copy_bytes(77, bytes, copied));
  CHECK(stand.download(copied, 77)[76] == 76);
  traffic = counters_of("copy_bytes").bytes.at("unlabelled");
  CHECK(traffic.loaded_bytes == 77);
  CHECK(traffic.stored_bytes == 77);
  CHECK(unread_reports() == "");

  // And not only counted: a copy past the end is found.
  stand.note(probes::copy_bytes(101, bytes, copied));
  stand.finish();
  const auto reports = emulation::take_reports();
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].fault == emulation::Fault::kOutOfBounds);
}

TEST_CASE("RequestCounter: the order in which lanes come does not matter") {
  const int first = GENERATE(0, 1, 8, 31);
  const int64_t bytes = GENERATE(4, 8, 16);
  emulation::RequestCounter counter;
  for (int i = 0; i < 32; ++i) {
    const int lane = (first + 5 * i) % 32;
    counter.note(static_cast<uint16_t>(32 + lane), nullptr, emulation::RequestKind::kShared,
                 static_cast<uint64_t>(4096 + lane * bytes), bytes);
  }
  emulation::KernelCounts counts;
  counter.flush(counts);
  check(counts.shared_accesses, 1, bytes / 4, bytes / 4);
}

}  // namespace shardscope::test
