// What a user measured, in the place of the shipped constants: reports of `bench` and `scale`, documents of `comm`, and
// tables of nccl-tests or of a topology.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "runtime/plan/plan.hpp"

namespace shardscope::runtime {

/// Small messages decide what a decode step's sums take: a table without any says nothing of it.
inline constexpr int64_t kSmallSum = 16 << 10;

struct CalibrationText {
  std::string_view text;
  std::string file;
};

/// All-reduce tables by number of ranks, and from reports the share of the data-sheet bandwidth and the overhead of a
/// layer, each with its residuals in notes. All was measured on that machine, or on one like it.
/// Throws UserError, which names the file: for a text of another kind, or without a figure that could be used; for a
/// table without sums under kSmallSum; where one file's figures come from one process that drives all GPUs and
/// another's from one process for each (launches are in the former's times, and no fit can tell); for figures of CPU
/// ranks or of stand-ins; for a report of other GPUs, of a model whose dimensions are not known here, or not in 16
/// bits.
OwnMeasurements read_calibration(std::span<const CalibrationText> files, const PlanMachine& machine,
                                 const PlanConstants& constants, const Calibration& calibration,
                                 const std::string& software);

}  // namespace shardscope::runtime
