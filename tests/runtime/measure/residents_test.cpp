#include "runtime/measure/residents.hpp"

#include <catch2/catch.hpp>

using namespace shardscope::runtime;

namespace {

/// Fits while slots x positions of the common cache is at most `most`.
auto cache_of(int64_t most) {
  return [most](const std::vector<Workload>& together) {
    const DecoderOptions shape = decoder_options(together, 1, {});
    return shape.slots * shape.max_positions <= most;
  };
}

using Sets = std::vector<std::vector<size_t>>;

}  // namespace

TEST_CASE("decoder_options: room for the largest of each") {
  const DecoderOptions shape = decoder_options(
      {{.batch = 8, .prompt_tokens = 10, .output_tokens = 1}, {.batch = 1, .prompt_tokens = 100, .output_tokens = 29}},
      4, {});
  CHECK(shape.slots == 8);
  CHECK(shape.max_positions == 128);  // the last token is never read
  CHECK(shape.max_step_tokens == 8);  // a decode step has a token of each sequence
}

TEST_CASE("plan_residents: everything together where it fits") {
  const std::vector<Workload> workloads = {{1, 9, 2}, {8, 9, 2}, {8, 99, 2}};
  const ResidentPlan plan = plan_residents(workloads, cache_of(800));
  CHECK(plan.residents == Sets{{0, 1, 2}});
  CHECK(plan.refused.empty());
}

TEST_CASE("plan_residents: a wide and a long one that fit only apart") {
  const std::vector<Workload> workloads = {{1, 999, 2}, {64, 9, 2}, {1, 9, 2}, {64, 999, 2}};
  const ResidentPlan plan = plan_residents(workloads, cache_of(1000));
  CHECK(plan.residents == Sets{{0, 2}, {1}});
  CHECK(plan.refused == std::vector<size_t>{3});
}

TEST_CASE("plan_residents: nothing fits, or there is nothing") {
  CHECK(plan_residents({{1, 9, 2}}, [](const auto&) { return false; }).refused == std::vector<size_t>{0});
  CHECK(plan_residents({}, [](const auto&) { return true; }).residents.empty());
}
