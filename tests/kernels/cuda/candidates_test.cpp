// The largest logits of rows on CUDA, against sorting; with noise, against logarithms of more bits.
#include "kernels/cuda/candidates.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/base/keyed_random.hpp"
#include "tests/kernels/cuda/conditions.hpp"
#include "tests/kernels/cuda/device_array.hpp"
#include "tests/kernels/reference.hpp"

using namespace shardscope;
using namespace shardscope::test;
using cuda::CandidateNoise;
using cuda::CandidateOut;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kMostRows = 4;
constexpr int64_t kMostColumns = 9000;

struct Case {
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t count = 1;
  int64_t padding = 0;  // between rows, in elements
  int64_t offset = 0;   // of the logits from an aligned place, in elements
  int32_t first_id = 0;
  bool programmatic = false;
};

/// What a row's logit is ranked by.
float score(float logit, int32_t id, const CandidateNoise& noise) {
  if (std::isnan(logit)) return kInfinity;
  if (noise.inverse_temperature == 0.0F) return logit;
  const long double gumbel = -std::log(-std::log(static_cast<long double>(keyed_uniform(noise.key, id))));
  const long double distance = static_cast<long double>(logit) - static_cast<long double>(noise.reference);
  return static_cast<float>(distance * static_cast<long double>(noise.inverse_temperature) + gumbel);
}

std::vector<CandidateOut> expected_of(const Case& c, const float* logits, const CandidateNoise& noise) {
  std::vector<CandidateOut> all;
  for (int64_t column = 0; column < c.columns; ++column) {
    const auto id = static_cast<int32_t>(c.first_id + column);
    all.push_back({score(logits[column], id, noise), id});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const CandidateOut& a, const CandidateOut& b) { return a.logit > b.logit; });
  all.resize(static_cast<size_t>(c.count), CandidateOut{-kInfinity, -1});
  return all;
}

/// One call with logits [rows][columns]; the workspace is that of earlier calls.
void check_candidates(const Case& c, const std::vector<float>& logits, const std::vector<CandidateNoise>& noise,
                      const DeviceArray<std::byte>& workspace) {
  INFO(c.rows << " x " << c.columns << ", " << c.count << " of each, padding " << c.padding << ", offset " << c.offset);
  const int64_t stride = c.columns + c.padding;
  std::vector<float> spread(static_cast<size_t>(c.offset + c.rows * stride), kInfinity);  // nobody may look between
  for (int64_t row = 0; row < c.rows; ++row) {
    std::copy_n(logits.begin() + row * c.columns, c.columns, spread.begin() + c.offset + row * stride);
  }
  const DeviceArray<float> device_logits(spread);
  const DeviceArray<CandidateNoise> device_noise(noise);
  const DeviceArray<CandidateOut> out(c.rows * c.count);
  REQUIRE(cuda::candidates_workspace_bytes(c.rows, c.columns, c.count) <= workspace.size());
  check_cuda(cuda::candidates({.logits = device_logits.data() + c.offset,
                               .rows = c.rows,
                               .columns = c.columns,
                               .stride = stride,
                               .first_id = c.first_id,
                               .count = c.count,
                               .noise = noise.empty() ? nullptr : device_noise.data(),
                               .out = out.data(),
                               .workspace = workspace.data(),
                               .programmatic = c.programmatic},
                              nullptr),
             "candidates");
  const std::vector<CandidateOut> actual = out.download();
  for (int64_t row = 0; row < c.rows; ++row) {
    const std::vector<CandidateOut> expected =
        expected_of(c, logits.data() + row * c.columns, noise.empty() ? CandidateNoise{} : noise[row]);
    for (int64_t i = 0; i < c.count; ++i) {
      const CandidateOut& here = actual[static_cast<size_t>(row * c.count + i)];
      INFO("row " << row << ", number " << i);
      CHECK(here.token_id == expected[static_cast<size_t>(i)].token_id);
      CHECK(here.logit == expected[static_cast<size_t>(i)].logit);
    }
  }
}

DeviceArray<std::byte> enough_workspace() {
  return DeviceArray<std::byte>::zeros(cuda::candidates_workspace_bytes(kMostRows, kMostColumns, cuda::kMaxCandidates));
}

/// Values of which many are equal, in any order; of both signs.
std::vector<float> with_ties(int64_t count, uint32_t seed) {
  std::vector<float> values = random_values(count, seed);
  for (float& value : values) value = std::floor(value * 20);
  return values;
}

}  // namespace

TEST_CASE("cuda candidates: the largest of rows of every length, alignment and number of blocks") {
  under_conditions([] {
    const auto workspace = enough_workspace();
    for (const int64_t columns : {1, 3, 7, 33, 1000, 2047, 2048, 2049, 8999}) {
      for (const int64_t rows : {1, 3}) {
        const Case c = {.rows = rows, .columns = columns, .first_id = 50};
        check_candidates(c, random_values(rows * columns, 1), {}, workspace);
        Case shifted = c;
        shifted.padding = 5;
        shifted.offset = 1;
        check_candidates(shifted, with_ties(rows * columns, 2), {}, workspace);
        Case padded = c;
        padded.padding = 8 - columns % 4;
        check_candidates(padded, with_ties(rows * columns, 3), {}, workspace);
      }
    }
  });
}

// Ascending and descending rows make the most and the fewest changes to a list.
TEST_CASE("cuda candidates: the first few of rows, in order, ties to the smaller id") {
  under_conditions({.seeds = 1}, [] {
    const auto workspace = enough_workspace();
    for (const int64_t count : {2, 32, 33, 64}) {
      for (const int64_t columns : {1, 63, 65, 2100}) {
        check_candidates({.rows = 2, .columns = columns, .count = count}, random_values(2 * columns, 1), {}, workspace);
        check_candidates({.rows = 2, .columns = columns, .count = count, .padding = 3}, with_ties(2 * columns, 2), {},
                         workspace);
      }
    }
    for (const float step : {1.0F, -1.0F}) {
      std::vector<float> values;
      for (int64_t i = 0; i < 8200; ++i) values.push_back(step * static_cast<float>(i));
      check_candidates({.columns = 8200, .count = 64, .first_id = 7}, values, {}, workspace);
    }
  });
}

TEST_CASE("cuda candidates: NaN, infinities and zeros of both signs") {
  under_conditions({.seeds = 1}, [] {
    const auto workspace = enough_workspace();
    for (const int64_t count : {1, 3, 64}) {
      const auto check = [&](const std::vector<float>& row) {
        check_candidates({.columns = std::ssize(row), .count = count}, row, {}, workspace);
      };
      check({kNan, kNan, kNan});
      check({kNan, 1, kNan, -2});
      check({-kInfinity, kNan, -kInfinity});
      check({0, kInfinity, -kInfinity, kNan, kInfinity, 5, -5});
      check({-0.0F, 0.0F, -0.0F});
      check({-1, 0.0F, -0.0F});
      check({-1e-45F, -3e38F, 3e38F, 1e-45F});
    }
  });
}

TEST_CASE("cuda candidates: a row without columns has none") {
  under_conditions({.seeds = 0}, [] {
    const auto workspace = enough_workspace();
    for (const int64_t count : {1, 4}) check_candidates({.rows = 2, .columns = 0, .count = count}, {}, {}, workspace);
  });
}

TEST_CASE("cuda candidates: noise by key and token, in the rows that have some") {
  under_conditions({.seeds = 2}, [] {
    const auto workspace = enough_workspace();
    const std::vector<CandidateNoise> noise = {
        {.key = position_key(1, 2, 3), .inverse_temperature = 1.25F, .reference = 9.5F},
        {.reference = 3},
        {.key = position_key(1, 2, 4), .inverse_temperature = 0.5F},
        {.key = position_key(9, 0, 0), .inverse_temperature = 1000, .reference = -7}};
    for (const int64_t columns : {1, 45, 2500}) {
      for (const int64_t count : {1, 20}) {
        std::vector<float> logits = random_values(4 * columns, 5);
        for (float& value : logits) value *= 10;
        if (columns > 1) logits[1] = kNan;
        check_candidates({.rows = 4, .columns = columns, .count = count, .first_id = 1000}, logits, noise, workspace);
      }
    }
  });
}

// Far from 0, scores would have no room left for the noise; scaled by 1e30 they would be infinite.
TEST_CASE("cuda candidates: at low temperatures the noise decides between close logits, and nothing is infinite") {
  under_conditions({.seeds = 1}, [] {
    const auto workspace = enough_workspace();
    for (const float largest : {50.0F, -50.0F, 25.0F}) {
      std::vector<float> logits = random_values(300, 6);
      for (float& value : logits) value = largest - 0.01F * std::abs(value);
      logits[17] = logits[203] = largest;  // a tie that the noise decides
      logits[100] = -largest;
      for (const float inverse : {1000.0F, 1e30F, std::numeric_limits<float>::min()}) {
        for (const uint64_t position : {1, 2, 3, 4}) {
          check_candidates(
              {.columns = std::ssize(logits), .count = 5, .first_id = 10}, logits,
              {{.key = position_key(3, 1, position), .inverse_temperature = inverse, .reference = largest}}, workspace);
        }
      }
    }
  });
}

// What is drawn over the whole vocabulary must not depend on how it is dealt to ranks.
TEST_CASE("cuda candidates: parts of a vocabulary draw what the whole draws") {
  under_conditions({.seeds = 0}, [] {
    const auto workspace = enough_workspace();
    constexpr int64_t kColumns = 700;
    const std::vector<float> logits = random_values(kColumns, 5);
    const DeviceArray<float> device_logits(logits);
    const DeviceArray<CandidateNoise> noise(
        std::vector<CandidateNoise>{{.key = position_key(4, 5, 6), .inverse_temperature = 2}});
    const auto best_of = [&](int64_t begin, int64_t end) {
      const DeviceArray<CandidateOut> out(1);
      check_cuda(cuda::candidates({.logits = device_logits.data() + begin,
                                   .rows = 1,
                                   .columns = end - begin,
                                   .stride = end - begin,
                                   .first_id = static_cast<int32_t>(begin),
                                   .noise = noise.data(),
                                   .out = out.data(),
                                   .workspace = workspace.data()},
                                  nullptr),
                 "candidates");
      return out.download().front();
    };
    const CandidateOut whole = best_of(0, kColumns);
    for (const int64_t cut : {1, 233, 350, 699}) {
      const CandidateOut low = best_of(0, cut);
      const CandidateOut high = best_of(cut, kColumns);
      CHECK(whole.token_id == (high.logit > low.logit ? high : low).token_id);
    }
  });
}

TEST_CASE("cuda candidates: calls that start early share a workspace") {
  under_conditions([] {
    const auto workspace = enough_workspace();
    constexpr int64_t kColumns = 4500;
    const DeviceArray<float> logits(random_values(kColumns, 1));
    const DeviceArray<CandidateOut> out(3);
    for (int i = 0; i < 3; ++i) {
      check_cuda(cuda::candidates({.logits = logits.data() + i,
                                   .rows = 1,
                                   .columns = kColumns - i,
                                   .stride = kColumns,
                                   .first_id = i,
                                   .out = out.data() + i,
                                   .workspace = workspace.data(),
                                   .programmatic = true},
                                  nullptr),
                 "candidates");
    }
    const std::vector<float> values = random_values(kColumns, 1);
    for (const CandidateOut& best : out.download()) {
      CHECK(best.token_id == std::max_element(values.begin() + 3, values.end()) - values.begin());
    }
  });
}

TEST_CASE("cuda candidates: a vocabulary as large as a real model's") {
  under_conditions({.seeds = 0}, [] {
    constexpr int64_t kColumns = 128256;
    const auto workspace = DeviceArray<std::byte>::zeros(cuda::candidates_workspace_bytes(1, kColumns, 50));
    check_candidates({.columns = kColumns}, random_values(kColumns, 1), {}, workspace);
    check_candidates({.columns = kColumns, .count = 50}, random_values(kColumns, 2), {}, workspace);
  });
}

TEST_CASE("cuda candidates: what it refuses and what is nothing to do") {
  under_conditions({.seeds = 0}, [] {
    const auto workspace = enough_workspace();
    const DeviceArray<float> logits = DeviceArray<float>::zeros(8);
    const DeviceArray<CandidateOut> out(8);
    const cuda::Candidates good = {.logits = logits.data(),
                                   .rows = 0,
                                   .columns = 4,
                                   .stride = 4,
                                   .out = out.data(),
                                   .workspace = workspace.data()};
    CHECK(cuda::candidates(good, nullptr) == cudaSuccess);
    const auto refused = [&](auto change) {
      cuda::Candidates bad = good;
      bad.rows = 1;
      change(bad);
      return cuda::candidates(bad, nullptr) == cudaErrorInvalidValue;
    };
    CHECK(refused([](cuda::Candidates& it) { it.count = 0; }));
    CHECK(refused([](cuda::Candidates& it) { it.count = 65; }));
    CHECK(refused([](cuda::Candidates& it) { it.rows = -1; }));
    CHECK(refused([](cuda::Candidates& it) { it.rows = cuda::kMaxCandidateRows + 1; }));
    CHECK(refused([](cuda::Candidates& it) { it.columns = -1; }));
    CHECK(refused([](cuda::Candidates& it) { it.stride = 3; }));
    CHECK(refused([](cuda::Candidates& it) { it.first_id = 0x7FFFFFFF; }));
    CHECK(refused([](cuda::Candidates& it) { it.workspace = nullptr; }));
    CHECK(refused([&](cuda::Candidates& it) { it.workspace = workspace.data() + 8; }));
  });
}
