// The tables that plan_text puts together, of at most 100 columns.
#pragma once

#include <string>

#include "runtime/report/plan_report.hpp"

namespace shardscope::runtime {

/// A line a row: times, rates and memory; of rows that do not fit what is lacking. Marks: see plan_text.cpp.
std::string plan_row_table(const PlanReport& report);

/// Where TPOT would go, and what would be lost against ideal scaling; empty where no row fits.
std::string plan_parts_tables(const PlanReport& report);

}  // namespace shardscope::runtime
