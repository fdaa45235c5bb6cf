// Warp operations of the emulation against plain loops written from the CUDA programming guide: shuffles of every kind
// and width, votes, reductions with NaN, zeros and infinities, and one mma tile with the fragment layout of the PTX
// ISA.
#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/emulation/orders.hpp"
#include "tests/emulation/probes/probes.hpp"

namespace shardscope::test {
namespace {

using probes::ShuffleKind;

constexpr int kLanes = 32;
constexpr uint32_t kFull = 0xFFFFFFFFu;

/// The lane whose value `lane` gets. The instruction takes five bits of the argument.
int source_of(ShuffleKind kind, int lane, int argument, int width) {
  const int begin = lane / width * width;
  const int end = begin + width;
  int source = lane;
  if (kind != ShuffleKind::kIndex) argument = (argument % 32 + 32) % 32;
  switch (kind) {
    case ShuffleKind::kIndex:
      return begin + (argument % width + width) % width;
    case ShuffleKind::kUp:
      source = lane - argument;
      return source < begin ? lane : source;
    case ShuffleKind::kDown:
      source = lane + argument;
      return source >= end ? lane : source;
    case ShuffleKind::kXor:
      source = lane ^ argument;  // groups before its own may be read, groups after it not
      return source >= end ? lane : source;
  }
  return lane;
}

/// Runs one shuffle and compares; false if a lane would read from outside the mask, which is not allowed.
template <class T>
bool shuffle_is_right(ShuffleKind kind, uint32_t mask, int width, const std::vector<int>& arguments) {
  std::vector<T> values(kLanes);
  std::vector<T> expected(kLanes);
  for (int lane = 0; lane < kLanes; ++lane) {
    values[static_cast<size_t>(lane)] = static_cast<T>(1000) + static_cast<T>(lane) * static_cast<T>(3);
    if (sizeof(T) == 8) values[static_cast<size_t>(lane)] *= static_cast<T>(1 << 20) * static_cast<T>(1 << 12);
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto l = static_cast<size_t>(lane);
    expected[l] = static_cast<T>(5);
    if ((mask >> lane & 1u) == 0) continue;
    const int source = source_of(kind, lane, arguments[l], width);
    if ((mask >> source & 1u) == 0) return false;
    expected[l] = values[static_cast<size_t>(source)];
  }
  Stand stand;
  T* const out = stand.upload(std::vector<T>(kLanes, static_cast<T>(5)));
  stand.note(probes::shuffle(kind, mask, width, stand.upload(values), stand.upload(arguments), out));
  CHECK(stand.download(out, kLanes) == expected);
  CHECK(stand.error() == cudaSuccess);
  return true;
}

}  // namespace

TEST_CASE("shuffle: each kind, width and mask gives each lane its source's value") {
  emulation::restart({});
  int tried = 0;
  for (const ShuffleKind kind : {ShuffleKind::kIndex, ShuffleKind::kUp, ShuffleKind::kDown, ShuffleKind::kXor}) {
    for (const uint32_t mask : {kFull, 0x0000FFFFu, 0xFFFF0000u, 0x55555555u, 0x001FFFFFu, 0x00000100u}) {
      for (const int width : {32, 16, 8, 2, 1}) {
        for (const int argument : {0, 1, 2, 3, 5, 7, 15, 16, 17, 31, 33, 38, 95, -1, -3}) {
          INFO("kind " << static_cast<int>(kind) << ", mask " << mask << ", width " << width << ", " << argument);
          tried += shuffle_is_right<int>(kind, mask, width, std::vector<int>(kLanes, argument)) ? 1 : 0;
        }
      }
    }
  }
  CHECK(tried > 500);
  CHECK(unread_reports() == "");
}

TEST_CASE("shuffle: lanes may name different sources, also negative and too large ones") {
  emulation::restart({});
  std::vector<int> arguments(kLanes);
  for (int lane = 0; lane < kLanes; ++lane) arguments[static_cast<size_t>(lane)] = 37 * lane - 100;
  CHECK(shuffle_is_right<int>(ShuffleKind::kIndex, kFull, 32, arguments));
  CHECK(shuffle_is_right<int>(ShuffleKind::kIndex, kFull, 8, arguments));
}

TEST_CASE("shuffle: values of float and of 8 bytes") {
  emulation::restart({});
  for (const ShuffleKind kind : {ShuffleKind::kIndex, ShuffleKind::kUp, ShuffleKind::kDown, ShuffleKind::kXor}) {
    CHECK(shuffle_is_right<float>(kind, kFull, 32, std::vector<int>(kLanes, 3)));
    CHECK(shuffle_is_right<uint64_t>(kind, kFull, 16, std::vector<int>(kLanes, 3)));
  }
}

TEST_CASE("votes: ballot, any and all count the lanes of the mask only") {
  under_orders([](Stand& stand) {
    const uint32_t patterns[] = {0u, kFull, 0x80000001u, 0x0000FFFFu, 0x12345678u};
    for (const uint32_t mask : {kFull, 0x0000FFFFu, 0xFFFF0000u, 0xAAAAAAAAu, 0x001FFFFFu, 0x80000000u}) {
      for (const uint32_t pattern : patterns) {
        std::vector<int> predicates(kLanes);
        for (int lane = 0; lane < kLanes; ++lane) {
          predicates[static_cast<size_t>(lane)] = (pattern >> lane & 1u) != 0 ? lane + 2 : 0;  // any non-zero number
        }
        auto* const results = stand.zeros<probes::VoteResults>(kLanes);
        stand.note(probes::vote(mask, stand.upload(predicates), results));
        const auto actual = stand.download(results, kLanes);
        for (int lane = 0; lane < kLanes; ++lane) {
          INFO("mask " << mask << ", pattern " << pattern << ", lane " << lane);
          const probes::VoteResults& votes = actual[static_cast<size_t>(lane)];
          const bool takes_part = (mask >> lane & 1u) != 0;
          CHECK(votes.ballot == (takes_part ? mask & pattern : 0));
          CHECK((votes.any != 0) == (takes_part && (mask & pattern) != 0));
          CHECK((votes.all != 0) == (takes_part && (mask & pattern) == mask));
          // Which other lanes are active at that moment nobody promises; the lane itself is.
          CHECK((votes.active >> lane & 1u) == (takes_part ? 1u : 0u));
        }
      }
    }
  });
}

TEST_CASE("warp_sum: the bits of a butterfly, in every lane") {
  under_orders([](Stand& stand) {
    std::vector<float> values(kLanes);
    for (int i = 0; i < kLanes; ++i) values[static_cast<size_t>(i)] = std::ldexp(1.0f + 0.37f * i, (i * 7) % 23 - 11);
    float* const sums = stand.unwritten<float>(kLanes);
    float* const maxima = stand.unwritten<float>(kLanes);
    stand.note(probes::reduce(stand.upload(values), sums, maxima));

    std::vector<float> lanes = values;
    for (const size_t offset : {16, 8, 4, 2, 1}) {
      const std::vector<float> before = lanes;
      for (size_t i = 0; i < kLanes; ++i) lanes[i] = before[i] + before[i ^ offset];
    }
    CHECK(stand.download(sums, kLanes) == lanes);
    CHECK(stand.download(maxima, kLanes) ==
          std::vector<float>(kLanes, *std::max_element(values.begin(), values.end())));
  });
}

TEST_CASE("warp_sum and warp_max: NaN, infinities and zeros as on the device") {
  emulation::restart({});
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  struct Case {
    float background, at_lane_3, at_lane_20;
    float sum, maximum;
  };
  const Case cases[] = {
      {1, kNan, 2, kNan, 2},           // a sum passes NaN on, fmaxf ignores it
      {kNan, kNan, kNan, kNan, kNan},  // unless there is nothing else
      {0, kInfinity, 0, kInfinity, kInfinity},
      {0, kInfinity, -kInfinity, kNan, kInfinity},
      {-kInfinity, -kInfinity, -kInfinity, -kInfinity, -kInfinity},
      {-0.0f, -0.0f, -0.0f, -0.0f, -0.0f},  // a sum of -0 alone keeps its sign
      {-0.0f, 0.0f, -0.0f, 0.0f, 0.0f},     // and a maximum prefers +0
      {-0.0f, -0.0f, 0.0f, 0.0f, 0.0f},
      {-7, -8, -9, -7 * 30 - 17, -7},
  };
  for (const Case& c : cases) {
    INFO(c.background << " " << c.at_lane_3 << " " << c.at_lane_20);
    std::vector<float> values(kLanes, c.background);
    values[3] = c.at_lane_3;
    values[20] = c.at_lane_20;
    Stand stand;
    float* const sums = stand.unwritten<float>(kLanes);
    float* const maxima = stand.unwritten<float>(kLanes);
    stand.note(probes::reduce(stand.upload(values), sums, maxima));
    const auto same = [](float actual, float expected) {
      if (std::isnan(expected)) return std::isnan(actual);
      return std::bit_cast<uint32_t>(actual) == std::bit_cast<uint32_t>(expected);
    };
    for (const float sum : stand.download(sums, kLanes)) CHECK(same(sum, c.sum));
    for (const float maximum : stand.download(maxima, kLanes)) CHECK(same(maximum, c.maximum));
    CHECK(stand.error() == cudaSuccess);
  }
}

TEST_CASE("mma_m16n8k16: d += a b with fragments as the PTX ISA lays them out") {
  const bool bf16 = GENERATE(false, true);
  under_orders([bf16](Stand& stand) {
    constexpr int kRows = 16;
    constexpr int kInner = 16;
    constexpr int kColumns = 8;
    // Integers of few bits: every product and sum is exact in either type, whatever the order.
    std::vector<float> a(kRows * kInner);
    std::vector<float> b(kInner * kColumns);
    std::vector<float> d(kRows * kColumns);
    uint32_t state = 12345;
    const auto next = [&state] {
      state = state * 1664525u + 1013904223u;
      return static_cast<float>(static_cast<int>(state >> 24) % 17 - 8);
    };
    for (float& value : a) value = next();
    for (float& value : b) value = next();
    for (float& value : d) value = 100 * next();
    std::vector<float> expected = d;
    for (int row = 0; row < kRows; ++row) {
      for (int column = 0; column < kColumns; ++column) {
        double sum = d[static_cast<size_t>(row * kColumns + column)];
        for (int k = 0; k < kInner; ++k) {
          sum += static_cast<double>(a[static_cast<size_t>(row * kInner + k)]) *
                 static_cast<double>(b[static_cast<size_t>(k * kColumns + column)]);
        }
        expected[static_cast<size_t>(row * kColumns + column)] = static_cast<float>(sum);
      }
    }
    float* const out = stand.upload(d);
    stand.note(probes::multiply_tile(bf16, stand.upload(a), stand.upload(b), out));
    CHECK(stand.download(out, d.size()) == expected);
  });
}

TEST_CASE("shuffle: a coordinate of a thread is a number") {
  emulation::restart({});
  Stand stand;
  unsigned* const out = stand.unwritten<unsigned>(kLanes);
  stand.note(probes::reverse_lanes(out));
  const std::vector<unsigned> lanes = stand.download(out, kLanes);
  for (unsigned lane = 0; lane < kLanes; ++lane) CHECK(lanes[lane] == kLanes - 1 - lane);
  CHECK(unread_reports() == "");
}

TEST_CASE("numbers: conversions of what has no place in the result") {
  emulation::restart({});
  Stand stand;
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {std::nanf(""), infinity, -infinity, 3e9f, -3e9f, 2.5f, -0.5f, 0.75f};
  const size_t count = values.size();
  int* const rounded = stand.unwritten<int>(count);
  float* const saturated = stand.unwritten<float>(count);
  stand.note(probes::convert(stand.upload(values), static_cast<unsigned>(count), rounded, saturated));
  // CUDA C++ Programming Guide and PTX ISA, cvt: saturates, NaN becomes 0; ties go to even.
  CHECK(stand.download(rounded, count) == std::vector<int>{0, INT_MAX, INT_MIN, INT_MAX, INT_MIN, 2, 0, 1});
  CHECK(stand.download(saturated, count) == std::vector<float>{0, 1, 0, 1, 0, 1, 0, 0.75f});
  CHECK(unread_reports() == "");
}

}  // namespace shardscope::test
