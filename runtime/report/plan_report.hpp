// What `plan` shows and writes: tables for people, a report (shardscope.report/1) whose rows are predicted, lines for a
// spreadsheet; the catalogue of what can be planned (shardscope.catalogue/1); the self-check (shardscope.selfcheck/1).
#pragma once

#include <string>
#include <vector>

#include "runtime/plan/plan.hpp"
#include "runtime/plan/self_check.hpp"
#include "runtime/report/document.hpp"

namespace shardscope::runtime {

/// A plan and what it was made of. Borrows all.
struct PlanReport {
  const OpenedModel& model;
  const PlanMachine& machine;
  const PlanOptions& options;
  const PlanConstants& constants;
  const Calibration& calibration;
  const OwnMeasurements& own;
  const Plan& plan;
  std::string against = "";                        // a paragraph about another machine; empty: not asked for
  std::vector<std::string> against_warnings = {};  // of that machine's topology

  /// How far predictions were off: the user's own fits where there are some.
  Spread90 spread() const;
  /// What the topologies' sources say of themselves.
  std::vector<std::string> warnings() const;
  /// Recommendations, and the paragraph.
  std::vector<std::string> advice() const;
  /// "no division …" where a bound was given and nothing keeps it; empty otherwise.
  std::string bound_missed() const;
};

/// What it is about and how wrong it may be, the table, where TPOT goes, what to take, and what all that rests on: at
/// most 100 columns. plan_text.cpp
std::string plan_text(const PlanReport& report);

/// A document shardscope.report/1. header: its topology is the planned machine's. plan_json.cpp
Json plan_json(const PlanReport& report, const ReportHeader& header);

/// As points_csv, with the ranges and the memory behind each line; `host` is the machine's name. plan_csv.cpp
std::string plan_csv(const PlanReport& report);

/// What --list shows: GPUs, machines, models, software. plan_catalogue.cpp
std::string catalogue_text(const PlanConstants& constants);
Json catalogue_json(const PlanConstants& constants);

/// A document shardscope.selfcheck/1.
Json self_check_json(const SelfCheck& check);

}  // namespace shardscope::runtime
