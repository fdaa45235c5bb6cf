#include "runtime/measure/visits.hpp"

#include "runtime/measure/residents.hpp"

namespace shardscope::runtime {

VisitPlan plan_visits(const std::vector<Place>& places, int passes,
                      const std::function<bool(const Place& of, const std::vector<Workload>&)>& fits) {
  VisitPlan plan;
  std::vector<Visit> all;  // every set of shards with all that is still to be measured on it
  for (size_t begin = 0; begin < places.size();) {
    const Place& of = places[begin];
    std::vector<size_t> open;
    std::vector<Workload> workloads;
    for (; begin < places.size() && places[begin].tp == of.tp && places[begin].group == of.group; ++begin) {
      if (places[begin].state == PlaceState::kDone) continue;
      open.push_back(begin);
      workloads.push_back(places[begin].workload);
    }
    const ResidentPlan residents =
        plan_residents(workloads, [&](const std::vector<Workload>& together) { return fits(of, together); });
    for (const size_t index : residents.refused) plan.refused.push_back(open[index]);
    for (const std::vector<size_t>& resident : residents.residents) {
      Visit visit{.tp = of.tp, .group = of.group, .pass = 0, .places = {}};
      for (const size_t index : resident) visit.places.push_back(open[index]);
      all.push_back(std::move(visit));
    }
  }
  for (const Visit& visit : all) {
    Visit first{.tp = visit.tp, .group = visit.group, .pass = 0, .places = {}};
    for (const size_t place : visit.places) {
      if (places[place].state == PlaceState::kOpen) first.places.push_back(place);
    }
    if (!first.places.empty()) plan.visits.push_back(std::move(first));
  }
  for (int pass = 1; pass < passes; ++pass) {
    for (auto visit = all.rbegin(); visit != all.rend(); ++visit) {
      plan.visits.push_back(*visit);
      plan.visits.back().pass = pass;
    }
  }
  return plan;
}

}  // namespace shardscope::runtime
