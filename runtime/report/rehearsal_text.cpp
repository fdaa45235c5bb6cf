#include "runtime/report/rehearsal_text.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "runtime/report/table_text.hpp"

namespace shardscope::runtime {

std::string rehearsal_lines(const std::vector<PointResult>& points) {
  std::set<int> compute_only;
  double error = 0;
  bool any = false;
  for (const PointResult& point : points) {
    if (!point.rehearsal) continue;
    any = true;
    error = std::max(error, point.rehearsal->stated_error);
    if (!point.rehearsal->step_collectives_ms) compute_only.insert(point.tp);
  }
  if (!any) return "";
  std::string text =
      wrapped(fmt::format("rehearsed, not measured: one rank stood for all of a degree; stated error of {} at "
                          "most {:.0f} %",
                          compute_only.empty() ? "TPOT" : "computing", error * 100));
  if (!compute_only.empty()) {
    text += wrapped(fmt::format("TP {}: compute only, the collectives' times are unknown and left out",
                                fmt::join(compute_only, ", ")));
  }
  return text + "\n";
}

}  // namespace shardscope::runtime
