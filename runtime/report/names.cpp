#include "runtime/report/names.hpp"

namespace shardscope::runtime {

const char* status_name(PointStatus status) {
  switch (status) {
    case PointStatus::kOk:
      return "ok";
    case PointStatus::kOutOfMemory:
      return "out_of_memory";
    case PointStatus::kInvalid:
      return "invalid";
    case PointStatus::kIncomplete:
      return "incomplete";
  }
  return "invalid";
}

const char* kind_name(FigureKind kind) {
  switch (kind) {
    case FigureKind::kMeasured:
      return "measured";
    case FigureKind::kRehearsed:
      return "rehearsed";
    case FigureKind::kPredicted:
      return "predicted";
    case FigureKind::kEmulated:
      return "emulated";
  }
  return "measured";
}

const char* cause_name(OutlierCause cause) {
  switch (cause) {
    case OutlierCause::kStolen:
      return "stolen";
    case OutlierCause::kWaited:
      return "waited";
    case OutlierCause::kSlowClock:
      return "slow_clock";
    case OutlierCause::kUnexplained:
      return "unexplained";
  }
  return "unexplained";
}

}  // namespace shardscope::runtime
