#include "runtime/report/rehearsal_text.hpp"

#include <set>

#include <fmt/format.h>

#include "runtime/measure/rehearsal_model.hpp"
#include "runtime/report/table_text.hpp"

namespace shardscope::runtime {

std::string rehearsal_lines(const std::vector<PointResult>& points) {
  std::set<int> compute_only;
  std::set<std::string> errors;
  bool any = false;
  for (const PointResult& point : points) {
    if (!point.rehearsal) continue;
    any = true;
    errors.insert(stated_error_text(*point.rehearsal));
    if (!point.rehearsal->step_collectives_ms) compute_only.insert(point.tp);
  }
  if (!any) return "";
  std::string text =
      wrapped(fmt::format("rehearsed, not measured: one rank stood for all of a degree; {}", fmt::join(errors, "; ")));
  if (!compute_only.empty()) {
    text += wrapped(fmt::format("TP {}: compute only, the collectives' times are unknown and left out",
                                fmt::join(compute_only, ", ")));
  }
  return text + "\n";
}

}  // namespace shardscope::runtime
