// How wrong plan is: its predictions of what others published, with the shipped constants and with the system predicted
// left out of every fit, beside rules that any prediction has to keep.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/plan/calibration.hpp"

namespace shardscope::runtime {

struct CheckedRow {
  std::string row, unit, source, note;
  double published = 0;
  std::string software;
  double predicted = 0, left_out = 0;  // left_out: no fit has seen the row's systems
  double low = 0, high = 0;            // the range of left_out, by the spread of other systems

  double error() const { return predicted / published - 1; }
  double left_out_error() const { return left_out / published - 1; }
  bool covered() const { return low <= published && published <= high; }
};

/// A statement that holds or does not.
struct CheckedRule {
  std::string rule, evidence;
  bool holds = false;
};

/// Of the sizes of errors, not their signs.
struct ErrorSizes {
  std::string name;  // a family of software, or "all", …
  size_t rows = 0;
  double mean = 0, worst = 0, left_out_mean = 0, left_out_worst = 0;
  double covered = 0;  // share of rows that are within the range of left_out
};

struct SelfCheck {
  std::vector<CheckedRow> rows;
  std::vector<CheckedRule> rules;
  std::vector<ErrorSizes> families;
  ErrorSizes all;
  ErrorSizes systems;  // without sums of kernels, which are made of the model's own tables
};

SelfCheck self_check(const PlanConstants& constants, const Calibration& calibration);

/// As tables: rows with published, predicted and error, then rules, residuals of the fits, mean and worst.
std::string self_check_text(const SelfCheck& check, const PlanConstants& constants, const Calibration& calibration);

}  // namespace shardscope::runtime
