// Candidates, logits on the host, and the read of all memory.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <limits>
#include <numeric>

#include "kernels/base/error.hpp"
#include "tests/kernels/reference.hpp"

using namespace shardscope;
using namespace shardscope::kernels;
using namespace shardscope::test;

namespace {

/// All columns sorted: descending, ties to the smaller column.
std::vector<int32_t> sorted_columns(std::span<const float> logits) {
  std::vector<int32_t> columns(logits.size());
  std::iota(columns.begin(), columns.end(), 0);
  std::stable_sort(columns.begin(), columns.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  return columns;
}

}  // namespace

TEST_CASE("top_candidates: any k, ties to the smaller column, padding never chosen") {
  const auto backend = make_cpu_backend({});
  for (const int64_t columns : {1, 7, 64, 1001}) {
    std::vector<float> values = random_values(2 * columns, 1);
    for (float& value : values) value = std::round(value * 20) / 20;  // many ties
    const auto logits = filled(*backend, 2, columns, values);
    const int64_t valid = std::max<int64_t>(1, columns - 3);
    for (int64_t column = valid; column < columns; ++column) logits->view().floats()[columns + column] = 1e9F;
    const auto row = std::span(logits->view().floats() + columns, static_cast<size_t>(valid));
    const std::vector<int32_t> order = sorted_columns(row);
    for_each_target([&](const std::string& target) {
      for (const int64_t k : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{40}, columns + 5}) {
        INFO(target << ", " << columns << " columns, k " << k);
        std::vector<Candidate> out(static_cast<size_t>(k));
        const int64_t count = backend->top_candidates(logits->view(), 1, valid, 1000, out);
        REQUIRE(count == std::min(k, valid));
        for (int64_t i = 0; i < count; ++i) {
          CHECK(out[i].token_id == 1000 + order[i]);
          CHECK(out[i].logit == row[order[i]]);
        }
      }
    });
  }
}

TEST_CASE("top_candidates: -inf comes last, NaN counts as +inf and is given as that") {
  const auto backend = make_cpu_backend({});
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  constexpr float kLargest = std::numeric_limits<float>::infinity();
  const auto best = [&](const std::vector<float>& values, int64_t count) {
    const auto columns = std::ssize(values);
    const auto logits = filled(*backend, 1, columns, values);
    std::vector<Candidate> out(static_cast<size_t>(count));
    REQUIRE(backend->top_candidates(logits->view(), 0, columns, 0, out) == count);
    return out;
  };
  const auto is = [](const Candidate& candidate, float logit, int32_t id) {
    return candidate.logit == logit && candidate.token_id == id;
  };
  for_each_target([&](const std::string& target) {
    // In each place that a vector, a group of vectors or the rest behind them may have.
    for (const int64_t columns : {1, 3, 40, 133}) {
      for (int64_t place = 0; place < columns; ++place) {
        INFO(target << ", column " << place << " of " << columns);
        std::vector<float> values(static_cast<size_t>(columns), kLowest);
        if (columns > 2) values[static_cast<size_t>((place + 2) % columns)] = 3.0F;
        CHECK(is(best(values, 1)[0], columns > 2 ? 3.0F : kLowest, columns > 2 ? (place + 2) % columns : 0));
        values[static_cast<size_t>(place)] = kNan;
        CHECK(is(best(values, 1)[0], kLargest, static_cast<int32_t>(place)));
        if (columns < 3) continue;
        const std::vector<Candidate> two = best(values, 2);
        CHECK(is(two[0], kLargest, static_cast<int32_t>(place)));
        CHECK(is(two[1], 3.0F, static_cast<int32_t>((place + 2) % columns)));
      }
    }
    const std::vector<Candidate> all = best({kLowest, 1, kNan, 2, kLargest, kLowest, kNan}, 7);
    const std::vector<int32_t> order = {2, 4, 6, 3, 1, 0, 5};
    for (size_t i = 0; i < all.size(); ++i) {
      INFO(target << ", number " << i);
      CHECK(all[i].token_id == order[i]);
    }
    CHECK(all[2].logit == kLargest);
    const std::vector<Candidate> three = best({kNan, kLargest, 5, kNan, kNan, kLargest}, 3);
    CHECK((three[0].token_id == 0 && three[1].token_id == 1 && three[2].token_id == 3));
  });
}

TEST_CASE("draw: NaN wins, wherever it is") {
  const Noise noise{.key = 5, .temperature = 0.5, .reference = 2};
  std::vector<float> row = {1, 2, 0, -1, 2};
  for (size_t i = 0; i < row.size(); ++i) {
    std::vector<float> broken = row;
    broken[i] = std::numeric_limits<float>::quiet_NaN();
    const Candidate drawn = noisiest(broken, 100, noise);
    CHECK(drawn.token_id == static_cast<int32_t>(100 + i));
    CHECK(drawn.logit == std::numeric_limits<float>::infinity());
  }
}

TEST_CASE("host_logits: a writable view of one row") {
  const auto backend = make_cpu_backend({});
  const auto logits = filled(*backend, 2, 3, std::vector<float>{1, 2, 3, 4, 5, 6});
  const std::span<float> row = backend->host_logits(logits->view(), 1);
  CHECK(std::vector<float>(row.begin(), row.end()) == std::vector<float>{4, 5, 6});
  row[0] = 9;
  CHECK(contents(logits->view())[3] == 9);
  CHECK_THROWS_AS(backend->host_logits(logits->view(), 2), BugError);
}

TEST_CASE("read_all: every byte counts once, whatever the threads and the instruction set") {
  // Sizes in whole 64-bit words, and of sums that do not depend on the order of bytes: every word holds one byte value.
  constexpr int64_t kRows = 50;
  constexpr int64_t kColumns = 64;
  StoredMatrix stored{DType::kF32, kRows, kColumns, {}, {}};
  stored.bytes.assign(static_cast<size_t>(kRows * kColumns * 4), std::byte{3});
  const uint64_t expected = uint64_t{0x0303030303030303} * (kRows * kColumns / 2);
  for_each_target([&](const std::string& target) {
    for (const int threads : {1, 2, 3}) {
      INFO(target << ", " << threads << " threads");
      const auto backend = make_cpu_backend({.threads = threads, .cores = {}, .activations = ActivationMode::kAuto});
      const auto matrix = load(*backend, {&stored, 1});
      const Matrix* const matrices[] = {matrix.get()};
      CHECK(backend->read_all(matrices, nullptr, {}) == expected);
    }
  });
}
