// The names that documents and tables use for the values of enums.
#pragma once

#include <array>

#include "runtime/measure/point.hpp"

namespace shardscope::runtime {

inline constexpr std::array kPointStatuses = {PointStatus::kOk, PointStatus::kOutOfMemory, PointStatus::kInvalid,
                                              PointStatus::kIncomplete};

/// "ok", "out_of_memory", …
const char* status_name(PointStatus status);

inline constexpr std::array kFigureKinds = {FigureKind::kMeasured, FigureKind::kRehearsed, FigureKind::kPredicted,
                                            FigureKind::kEmulated};

/// "measured", "rehearsed", "predicted", "emulated".
const char* kind_name(FigureKind kind);

/// "stolen", "waited", "slow_clock", "unexplained".
const char* cause_name(OutlierCause cause);

}  // namespace shardscope::runtime
