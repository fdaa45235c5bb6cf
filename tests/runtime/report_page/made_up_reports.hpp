// Reports as sweeps would write them, of machines that nobody has: for tests of the pages that show them. The figures
// follow from a simple model of a step, so that pages look like those of real runs.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/report/document.hpp"

namespace shardscope::test {

/// Degrees 1, 2, 4, 8 and nine batches on eight GPUs: attributions that sum up, a slow rank, samples, all-reduce times.
runtime::Json big_report();
/// Degrees 1 to 8, two prompt lengths, three placements, rows of several statuses.
runtime::Json mixed_report();
/// One degree, one batch, without an attribution.
runtime::Json single_report();
/// One degree, several batches.
runtime::Json batches_report();
/// No row ran: out of memory, invalid, nothing.
runtime::Json nothing_ok_report();
/// No rows at all: interrupted before the first.
runtime::Json empty_report();
/// One output token: no TPOT.
runtime::Json no_tpot_report();
/// Degrees 1, 2, 4 on four ranks, alone and as replicas at once.
runtime::Json replicas_report();
/// Of a plan: each figure with the range that it states.
runtime::Json predicted_report();
/// Every text of it is an attack on a page: "</script>", attributes, comments, line separators.
runtime::Json hostile_report();

/// All of them with the names of the files that a browser shows.
std::vector<std::pair<std::string, runtime::Json>> all_reports();

/// The drawing of the report's topology; empty where it has none.
std::string drawing_of(const runtime::Json& report);

}  // namespace shardscope::test
