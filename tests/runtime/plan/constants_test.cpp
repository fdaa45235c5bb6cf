#include "runtime/plan/constants.hpp"

#include <algorithm>
#include <set>

#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"
#include "runtime/model/named.hpp"
#include "runtime/plan/calibration.hpp"
#include "topology/catalogue.hpp"
#include "topology/collective_times.hpp"
#include "topology/device_peaks.hpp"

namespace shardscope::runtime {
namespace {

using Catch::Matchers::Contains;

std::string refusal(const std::string& json) {
  try {
    constants_from(json);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("plan constants: every figure has its source and date, and every GPU whose tables stand for it") {
  const PlanConstants& constants = plan_constants();
  const auto has_origin = [](const Origin& origin) {
    return origin.source.size() > 10 && origin.date.starts_with("20");
  };
  for (const ProductTable& table : constants.products) CHECK(has_origin(table.origin));
  for (const LargeProducts& one : constants.large_products) CHECK(has_origin(one.origin));
  for (const SumTable& table : constants.sums) CHECK(has_origin(table.origin));
  for (const PathPieces& pieces : constants.paths) CHECK(has_origin(pieces.origin));
  CHECK(has_origin(constants.attention_origin));
  CHECK(has_origin(constants.stage_hop_origin));
  for (const topology::DevicePeaks& gpu : topology::device_peaks()) {
    INFO(gpu.name);
    const GpuLike like = table_gpu(constants, gpu.name);
    CHECK(std::any_of(constants.products.begin(), constants.products.end(),
                      [&](const ProductTable& table) { return table.gpu == like.gpu; }));
  }
  CHECK_THROWS_AS(table_gpu(constants, "abacus"), BugError);
}

TEST_CASE("plan constants: published rows name models, GPUs and software that are known") {
  std::set<std::string> names;
  for (const PublishedRow& row : plan_constants().published) {
    INFO(row.row);
    CHECK(names.insert(row.row).second);
    CHECK(named_configuration(row.of.model));
    CHECK(topology::find_device_peaks(row.of.gpu) != nullptr);
    CHECK_NOTHROW(plan_constants().software_named(row.software));
    if (!row.against) continue;
    CHECK(named_configuration(row.against->model));
    CHECK(topology::find_device_peaks(row.against->gpu) != nullptr);
  }
}

TEST_CASE("plan constants: an unknown family of software is refused with the known") {
  CHECK_THROWS_WITH(plan_constants().software_named("vllm"),
                    Contains("no family of software 'vllm'") && Contains("gpt-fast") && Contains("--software"));
}

TEST_CASE("known_collective_times: stand for those machines alone that they were measured on") {
  const std::vector<topology::KnownTimes> known = known_collective_times(plan_constants());
  const auto us = [&](std::string_view name) {
    const topology::Machine* machine = topology::find_machine(name);
    REQUIRE(machine != nullptr);
    const auto time = topology::CollectiveTimes(topology::topology_of(*machine), known).time(4, 8192);
    return time ? time->us : 0;
  };
  CHECK(us("aws-p5") == 10.0);
  CHECK(us("aws-p4d") == 14.7);
  CHECK(us("aws-p4de") == 14.7);
  for (const char* const other : {"azure-nc96ads-v4", "leonardo", "aws-p3", "aws-p5e", "aws-g5-48xlarge"}) {
    INFO(other);
    CHECK(us(other) == 0);
  }
}

TEST_CASE("plan constants: what is damaged is named") {
  CHECK_THAT(refusal("{"), Contains("no JSON"));
  CHECK_THAT(refusal("{}"), Contains("products"));
  const std::string table = R"({"products": [{"gpu": "a", "source": "s", "date": "2026", "points": [)";
  CHECK_THAT(refusal(table + R"({"rows": 1, "columns": 1, "share": 1.5}]}]})"),
             Contains("share") && Contains("below 1"));
  CHECK_THAT(refusal(table + R"({"rows": 1, "columns": 1, "share": 0.5}]}]})"), Contains("too few"));
}

}  // namespace
}  // namespace shardscope::runtime
