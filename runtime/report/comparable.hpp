// Which reports may be compared, and which may be continued: those with the same comparable_key.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/report/document.hpp"

namespace shardscope::runtime {

/// A larger file is no report that is read.
inline constexpr int64_t kLargestReportBytes = 256'000'000;

/// The part of a report that must agree: schema, model (without its name), workload, protocol. Takes a whole report.
Json comparable_facts(const Json& report);

/// 16 hex digits: a hash of comparable_facts. The order of keys does not matter.
std::string comparable_key(const Json& report);

/// What differs between two reports' comparable facts: "workload.points: 3 values, 4 values" or
/// "model.layers: 4, 32", one line a field, in document order; empty where the keys agree.
std::vector<std::string> comparable_differences(const Json& a, const Json& b);

/// What differs between two runs that makes their times different ones: CPU, cores, threads, backend, the all-reduce
/// asked for, and the peaks that MBU and MFU divide by.
std::vector<std::string> machine_differences(const Json& a, const Json& b);

/// What else differs between two reports' environments (host, version, kernel, …), for warnings.
std::vector<std::string> environment_differences(const Json& a, const Json& b);

struct Continued {
  std::vector<PointResult> points;    // ok, or incomplete with the samples of their first visit
  std::vector<std::string> warnings;  // the earlier report's environment differs in …
};

/// What a run may take over from `file`'s report. `planned`: this run's own report, still without results. Throws
/// UserError naming file and reason: unreadable, not a report, another command, another key, or points of
/// another machine (with the differences).
Continued continue_report(const std::string& file, const Json& planned);

}  // namespace shardscope::runtime
