#include "runtime/generate/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "kernels/base/error.hpp"
#include "tests/support/decoding.hpp"

using namespace shardscope;
using namespace shardscope::runtime;

namespace {

/// Draws one token per position from a fixed row of logits dealt over `ranks`.
std::vector<int32_t> draws(const std::vector<float>& logits, const SamplingOptions& options, int ranks, int count,
                           std::vector<int32_t> history = {}, int64_t valid = -1) {
  std::vector<int32_t> result;
  const auto vocab = static_cast<int64_t>(logits.size());
  test::run_group(ranks, kernels::ActivationMode::kF32, [&](RankContext context) {
    const int rank = context.communicator.rank();
    const Range own = parallel::even_share(vocab, rank, ranks);
    const auto buffer = context.backend.make_activations(1, own.size());
    Sampler sampler(context.backend, context.communicator, own, valid < 0 ? vocab : valid, 1);
    for (int position = 0; position < count; ++position) {
      std::copy(logits.begin() + own.begin, logits.begin() + own.end, buffer->view().floats());
      const std::vector<SampleRow> rows = {
          {.request = 3, .position = position, .history = history, .options = &options}};
      int32_t id = -1;
      sampler.sample(buffer->view(), rows, std::span(&id, 1));
      if (rank == 0) result.push_back(id);
    }
  });
  return result;
}

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> p;
  double sum = 0;
  for (const float logit : logits) {
    p.push_back(std::exp(logit / temperature));
    sum += p.back();
  }
  for (double& value : p) value /= sum;
  return p;
}

/// Pearson's chi-squared of observed draws against probabilities; classes with p = 0 must not occur.
double chi_squared(const std::vector<int32_t>& ids, const std::vector<double>& p) {
  std::vector<double> counts(p.size(), 0.0);
  for (const int32_t id : ids) counts.at(id) += 1;
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double expected = p[i] * ids.size();
    if (expected == 0) {
      REQUIRE(counts[i] == 0);
      continue;
    }
    sum += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return sum;
}

const std::vector<float> kLogits = {0.5F, 2.0F, -1.0F, 1.0F, 0.0F, 2.5F, 1.5F, -3.0F, 0.7F};
// 99.99 % quantile of chi-squared with 8 degrees of freedom; the seed is fixed, so the test is deterministic.
constexpr double kChiSquaredLimit = 31.8;
constexpr int kDraws = 4000;

}  // namespace

TEST_CASE("sampler: greedy takes the largest logit, the smaller id on ties, at every degree") {
  const int ranks = GENERATE(1, 2, 3, 5);
  CHECK(draws({1, 3, 2, 3, 0, 3}, {}, ranks, 1) == std::vector<int32_t>{1});
  CHECK(draws({1, 2, 9}, {}, ranks, 1) == std::vector<int32_t>{2});
}

TEST_CASE("sampler: ids without a token are never drawn") {
  const int ranks = GENERATE(1, 2, 4);
  CHECK(draws({1, 2, 9, 9}, {}, ranks, 1, {}, 2) == std::vector<int32_t>{1});
  for (const int32_t id : draws({1, 2, 9, 9}, {.temperature = 1}, ranks, 200, {}, 2)) CHECK(id < 2);
}

TEST_CASE("sampler: the same tokens are drawn at every degree") {
  const SamplingOptions options =
      GENERATE(SamplingOptions{.temperature = 1, .seed = 7}, SamplingOptions{.temperature = 0.8, .top_k = 4, .seed = 7},
               SamplingOptions{.temperature = 1.2, .top_p = 0.7, .seed = 9},
               SamplingOptions{.temperature = 1, .min_p = 0.2, .seed = 1});
  const std::vector<int32_t> alone = draws(kLogits, options, 1, 300);
  for (const int ranks : {2, 3, 4, 8}) CHECK(draws(kLogits, options, ranks, 300) == alone);
}

TEST_CASE("sampler: a tiny temperature is greedy, at every degree") {
  const double temperature = GENERATE(1e-6, 1e-40, 1e-300);
  for (const int ranks : {1, 2, 3}) {
    CHECK(draws(kLogits, {.temperature = temperature, .seed = 4}, ranks, 3) == std::vector<int32_t>{5, 5, 5});
    CHECK(draws(kLogits, {.temperature = temperature, .top_p = 0.9, .seed = 4}, ranks, 3) ==
          std::vector<int32_t>{5, 5, 5});
  }
}

TEST_CASE("sampler: temperature alone draws from the exact softmax") {
  const double temperature = GENERATE(0.5, 1.0, 2.0);
  const auto ids = draws(kLogits, {.temperature = temperature, .seed = 11}, 2, kDraws);
  CHECK(chi_squared(ids, softmax(kLogits, temperature)) <= kChiSquaredLimit);
}

TEST_CASE("sampler: top-k, top-p and min-p draw from the renormalised rest") {
  std::vector<double> p = softmax(kLogits, 1.0);
  SamplingOptions options{.temperature = 1, .seed = 5};
  std::vector<bool> kept(p.size(), false);
  SECTION("top-k 3") {
    options.top_k = 3;
    for (const int id : {5, 1, 6}) kept[id] = true;
  }
  SECTION("top-p: the smallest set of the likeliest that reaches it") {
    options.top_p = p[5] + p[1] + 0.01;  // a little more than two: three
    for (const int id : {5, 1, 6}) kept[id] = true;
  }
  SECTION("min-p") {
    options.min_p = std::exp(1.5 - 2.5) - 1e-3;  // everything down to logit 1.5
    for (const int id : {5, 1, 6}) kept[id] = true;
  }
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += kept[i] ? p[i] : 0;
  for (size_t i = 0; i < p.size(); ++i) p[i] = kept[i] ? p[i] / sum : 0;
  CHECK(chi_squared(draws(kLogits, options, 3, kDraws), p) <= kChiSquaredLimit);
}

TEST_CASE("sampler: top-p reaches past its first candidates on a flat distribution") {
  const std::vector<float> flat(1000, 0.25F);
  const auto ids = draws(flat, {.temperature = 1, .top_p = 0.9, .seed = 2}, 2, 2000);
  const auto [low, high] = std::minmax_element(ids.begin(), ids.end());
  CHECK(*low < 20);
  CHECK(*high < 900);  // ties go to the smaller id: the set is 0 … 899
  CHECK(*high > 850);
}

TEST_CASE("sampler: the repetition penalty moves seen tokens down, once") {
  const SamplingOptions options{.repetition_penalty = 2};
  CHECK(draws({3, 2, -1}, options, 1, 1, {0, 0, 0}) == std::vector<int32_t>{1});  // 3 / 2 < 2
  CHECK(draws({5, 2, -1}, options, 2, 1, {0, 0, 0}) == std::vector<int32_t>{0});  // 5 / 2 > 2: not divided thrice
  CHECK(draws({-1, -1.5F}, options, 2, 1, {0}) == std::vector<int32_t>{1});       // -2 < -1.5
}

TEST_CASE("sampler: logits that are not finite are an error") {
  const float bad = GENERATE(std::nanf(""), INFINITY);
  CHECK_THROWS_AS(draws({bad, bad}, {}, 1, 1), SystemError);
  CHECK_THROWS_AS(draws({-INFINITY, -INFINITY}, {}, 1, 1), SystemError);
  // One of them is enough, on whichever rank, and whatever the others have.
  const SamplingOptions options =
      GENERATE(SamplingOptions{}, SamplingOptions{.temperature = 1}, SamplingOptions{.temperature = 1, .top_k = 2},
               SamplingOptions{.temperature = 1, .top_p = 0.5}, SamplingOptions{.repetition_penalty = 2});
  for (size_t place = 0; place < kLogits.size(); ++place) {
    std::vector<float> logits = kLogits;
    logits[place] = bad;
    CAPTURE(place);
    for (const int ranks : {1, 2, 3}) CHECK_THROWS_AS(draws(logits, options, ranks, 1, {1, 3}), SystemError);
  }
}

TEST_CASE("sampling options: values out of range name the option") {
  CHECK_THROWS_AS((SamplingOptions{.temperature = -1}.validate()), UserError);
  CHECK_THROWS_AS((SamplingOptions{.temperature = 1, .top_p = 0}.validate()), UserError);
  CHECK_THROWS_AS((SamplingOptions{.temperature = 1, .min_p = 1.5}.validate()), UserError);
  CHECK_THROWS_AS((SamplingOptions{.repetition_penalty = 0}.validate()), UserError);
  CHECK_NOTHROW((SamplingOptions{.temperature = 1, .top_k = 3, .top_p = 0.5, .min_p = 0.1}.validate()));
}
