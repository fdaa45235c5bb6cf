// Names that drivers give GPUs, and the rows of device_peaks() that they mean.
#pragma once

#include <string_view>

#include "topology/device_peaks.hpp"

namespace shardscope::topology {

/// The row of device_peaks() that a driver's name means, with or without "NVIDIA" or "Tesla" before it; nullptr where
/// it does not say which of several, and for a part of a GPU (MIG), whose bandwidth is a part, too.
const DevicePeaks* peaks_of_name(std::string_view driver_name);

/// What a driver calls the GPU of a row, on the board that it is most often sold on: peaks_of_name() of it is the row.
/// Throws BugError for what is no row of device_peaks().
std::string_view driver_name_of(const DevicePeaks& peaks);

}  // namespace shardscope::topology
