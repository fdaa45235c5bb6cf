// Which reports may be compared, and which may be continued: those with the same comparable_key.
#pragma once

#include <string>
#include <vector>

#include "runtime/report/document.hpp"

namespace shardscope::runtime {

/// The part of a report that must agree: schema, model (without its name), workload, protocol. Takes a whole report.
Json comparable_facts(const Json& report);

/// 16 hex digits: a hash of comparable_facts. The order of keys does not matter.
std::string comparable_key(const Json& report);

/// What differs between two reports' comparable facts: "workload.points: 3 values, 4 values" or
/// "model.layers: 4, 32", one line a field, in document order; empty where the keys agree.
std::vector<std::string> comparable_differences(const Json& a, const Json& b);

/// What differs between two reports' environments (host, cpu, threads, backend, version, …), for warnings.
std::vector<std::string> environment_differences(const Json& a, const Json& b);

struct Continued {
  std::vector<PointResult> points;    // complete ones: ok, out_of_memory, invalid
  std::vector<std::string> warnings;  // the earlier report's environment differs in …
};

/// What a run may take over from `file`'s report. `planned`: this run's own report, still without results. Throws
/// UserError naming file and reason: unreadable, not a report, another command, or another key (with the differences).
Continued continue_report(const std::string& file, const Json& planned);

}  // namespace shardscope::runtime
