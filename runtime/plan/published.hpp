// Predictions of published figures: what fits and the self-check compare with.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "runtime/plan/calibration.hpp"

namespace shardscope::runtime {

/// A named configuration in the hands of tp GPUs, fp16 or bf16.
PlannedModel planned_named_model(const std::string& name, int tp);

/// Predicts rows; keeps the models that they name.
class PublishedModels {
 public:
  explicit PublishedModels(const PlanConstants& constants) : constants_(constants) {}

  double predicted(const PublishedRow& row, const Calibration& calibration);

 private:
  double figure(const PublishedRow& row, const PublishedCase& one, const Calibration& calibration);
  const PlannedModel& model(const PublishedCase& one);

  const PlanConstants& constants_;
  std::map<std::pair<std::string, int>, PlannedModel> models_;
};

/// A figure of the step alone (TPOT, MBU), or of a whole batch.
bool of_the_step(const PublishedRow& row);

}  // namespace shardscope::runtime
