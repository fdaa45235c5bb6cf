#include "runtime/measure/step_ledger.hpp"

#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"
#include "tests/support/scripted_steps.hpp"

using namespace shardscope;
using namespace shardscope::runtime;
using kernels::Operation;
using kernels::OperationTimes;
using test::Script;
using test::scripted_times;

TEST_CASE("step ledger: own time is from the later of start and the predecessor's end, a gap what lies between") {
  StepLedger ledger;
  ledger.add(std::vector<OperationTimes>{{Operation::kProduct, 0, 90}}, false);
  CHECK(ledger.steps() == 0);
  CHECK(ledger.own_ns(Operation::kProduct) == 0);  // of a prompt's step only the end matters
  ledger.add(std::vector<OperationTimes>{{Operation::kEmbedding, 100, 110},
                                         {Operation::kProduct, 105, 150},    // begins under its predecessor
                                         {Operation::kAttention, 130, 140},  // runs within it
                                         {Operation::kProduct, 170, 200}},
             true);
  CHECK(ledger.steps() == 1);
  CHECK(ledger.own_ns(Operation::kEmbedding) == 10);
  CHECK(ledger.own_ns(Operation::kProduct) == 40 + 30);
  CHECK(ledger.own_ns(Operation::kAttention) == 0);
  CHECK(ledger.gap_ns() == 10 + 20);
  ledger.clear();
  ledger.add(std::vector<OperationTimes>{{Operation::kProduct, 100, 110}}, true);
  CHECK(ledger.gap_ns() == 0);  // nothing is known to come before
}

TEST_CASE("step ledger: nothing noted, no step and ledgers of different calls give no times") {
  StepLedger ledger;
  CHECK_FALSE(step_times_of(ledger.to_doubles(), 1, true));
  ledger.add({}, true);
  CHECK_FALSE(step_times_of(ledger.to_doubles(), 1, true));
  StepLedger other;
  ledger.clear();
  ledger.add(std::vector<OperationTimes>{{Operation::kProduct, 0, 5}, {Operation::kSum, 5, 6}}, true);
  other.add(std::vector<OperationTimes>{{Operation::kProduct, 0, 5}, {Operation::kExchange, 5, 6}}, true);
  std::vector<double> both = ledger.to_doubles();
  const std::vector<double> second = other.to_doubles();
  both.insert(both.end(), second.begin(), second.end());
  CHECK_FALSE(step_times_of(both, 2, true));
  CHECK_THROWS_AS(step_times_of(both, 3, true), BugError);
}

TEST_CASE("step times: what each clock can tell of who waited for whom") {
  // Rank 0 comes at 100, rank 1 at 130; from there the sum takes 7.
  const auto ledgers = [](int64_t shift, bool knows) {
    StepLedger early, late;
    early.add(std::vector<OperationTimes>{{Operation::kProduct, 0, 100}, {Operation::kSum, 100, 137, knows ? 130 : -1}},
              true);
    late.add(std::vector<OperationTimes>{{Operation::kProduct, shift, shift + 130},
                                         {Operation::kSum, shift + 130, shift + 137, knows ? shift + 130 : -1}},
             true);
    std::vector<double> both = early.to_doubles();
    const std::vector<double> second = late.to_doubles();
    both.insert(both.end(), second.begin(), second.end());
    return both;
  };
  const auto check = [](const std::vector<double>& both, bool one_clock) {
    const auto times = step_times_of(both, 2, one_clock);
    REQUIRE(times);
    CHECK(times->at(0).wait == Approx(30e-6));
    CHECK(times->at(1).wait == Approx(0).margin(1e-12));
    CHECK(times->at(0).transfer == Approx(7e-6));
    CHECK(times->at(1).transfer == Approx(7e-6));
  };
  check(ledgers(0, false), true);
  check(ledgers(5000, false), false);  // clocks of their own: the shortest of the two is the transfer
  check(ledgers(5000, true), false);   // each knows itself
}

TEST_CASE("step times: a script's parts come back exactly") {
  const Script script{.layers = 3, .steps = 5, .ranks = {{.product_ns = 1000}, {.product_ns = 1700}}};
  const auto times = step_times_of(scripted_times(script), 2, true);
  REQUIRE(times);
  for (int rank = 0; rank < 2; ++rank) {
    const StepTimes& step = (*times)[static_cast<size_t>(rank)];
    const test::ScriptedRank& wanted = script.ranks[static_cast<size_t>(rank)];
    INFO("rank " << rank);
    CHECK(step.products == Approx(script.products() * static_cast<double>(wanted.product_ns) * 1e-6));
    CHECK(step.attention == Approx(3 * static_cast<double>(wanted.attention_ns) * 1e-6));
    CHECK(step.head == Approx(static_cast<double>(wanted.head_ns + wanted.candidates_ns + script.exchange_ns) * 1e-6));
    CHECK(step.transfer == Approx(script.sums() * static_cast<double>(script.transfer_ns) * 1e-6));
  }
}
