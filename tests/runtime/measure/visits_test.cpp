#include "runtime/measure/visits.hpp"

#include <fmt/format.h>
#include <catch2/catch.hpp>

using namespace shardscope::runtime;

namespace {

const Workload kSmall{.batch = 1, .prompt_tokens = 8, .output_tokens = 4};
const Workload kLarge{.batch = 9, .prompt_tokens = 8, .output_tokens = 4};

/// Degrees 1 and 2 by both workloads.
std::vector<Place> four_places() {
  return {{.tp = 1, .workload = kSmall},
          {.tp = 1, .workload = kLarge},
          {.tp = 2, .group = 1, .workload = kSmall},
          {.tp = 2, .group = 1, .workload = kLarge}};
}

bool always(const Place&, const std::vector<Workload>&) {
  return true;
}

/// "tp/pass: places" of each visit.
std::vector<std::string> text_of(const VisitPlan& plan) {
  std::vector<std::string> lines;
  for (const Visit& visit : plan.visits) {
    lines.push_back(fmt::format("{}/{}: {}", visit.tp, visit.pass, fmt::join(visit.places, " ")));
  }
  return lines;
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("plan_visits: degrees up, then down") {
  CHECK(text_of(plan_visits(four_places(), 2, always)) == Lines{"1/0: 0 1", "2/0: 2 3", "2/1: 2 3", "1/1: 0 1"});
  CHECK(text_of(plan_visits(four_places(), 1, always)) == Lines{"1/0: 0 1", "2/0: 2 3"});
}

TEST_CASE("plan_visits: what an earlier run measured is left out, of a half the first visit alone") {
  std::vector<Place> places = four_places();
  places[0].state = PlaceState::kDone;
  places[2].state = PlaceState::kHalf;
  CHECK(text_of(plan_visits(places, 2, always)) == Lines{"1/0: 1", "2/0: 3", "2/1: 2 3", "1/1: 1"});
  for (Place& place : places) place.state = PlaceState::kHalf;
  CHECK(text_of(plan_visits(places, 2, always)) == Lines{"2/1: 2 3", "1/1: 0 1"});
  for (Place& place : places) place.state = PlaceState::kDone;
  CHECK(text_of(plan_visits(places, 2, always)).empty());
}

TEST_CASE("plan_visits: what does not fit together is loaded apart, what does not fit at all is refused") {
  const auto one_each = [](const Place&, const std::vector<Workload>& together) { return together.size() == 1; };
  CHECK(text_of(plan_visits(four_places(), 2, one_each)) ==
        Lines{"1/0: 0", "1/0: 1", "2/0: 2", "2/0: 3", "2/1: 3", "2/1: 2", "1/1: 1", "1/1: 0"});
  const auto two_ranks = [](const Place& of, const std::vector<Workload>& together) {
    return of.tp == 2 || together == std::vector<Workload>{kSmall};
  };
  const VisitPlan plan = plan_visits(four_places(), 2, two_ranks);
  CHECK(plan.refused == std::vector<size_t>{1});
  CHECK(text_of(plan) == Lines{"1/0: 0", "2/0: 2 3", "2/1: 2 3", "1/1: 0"});
}

TEST_CASE("plan_visits: groups of one degree at different places are visited one after another, and back") {
  std::vector<Place> places = four_places();
  places.push_back({.tp = 2, .group = 2, .workload = kSmall});
  places.push_back({.tp = 2, .group = 2, .workload = kLarge});
  CHECK(text_of(plan_visits(places, 2, always)) ==
        Lines{"1/0: 0 1", "2/0: 2 3", "2/0: 4 5", "2/1: 4 5", "2/1: 2 3", "1/1: 0 1"});
  const VisitPlan plan = plan_visits(places, 1, [](const Place& of, const std::vector<Workload>&) {
    return of.group != 1;  // whose devices have no room
  });
  CHECK(plan.refused == std::vector<size_t>{2, 3});
  CHECK(text_of(plan) == Lines{"1/0: 0 1", "2/0: 4 5"});
  CHECK(plan.visits[1].group == 2);
}
