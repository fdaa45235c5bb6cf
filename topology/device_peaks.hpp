// Data-sheet peaks of GPUs: what MBU and MFU divide by. One table, each row with its source. A wrong row is a wrong MBU
// (the two A100s differ by 31 %), so where a driver answers, its clock and bus width check the chosen row.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace shardscope::topology {

/// Dense peaks (sheets often print the sparse number, twice as large), with fp32 accumulation. nullopt: the type is not
/// supported or unknown.
struct DevicePeaks {
  std::string_view name;  // as --gpu takes it: "a100-40gb"
  double memory_gb = 0;   // nominal capacity, the number in its sales name: no measure of what can be allocated
  double gb_per_s = 0;    // memory bandwidth, 10^9 bytes
  std::optional<double> fp16_tflops, bf16_tflops, int8_tops, fp8_tflops;
  std::string_view source;
};

std::span<const DevicePeaks> device_peaks();

/// The row with exactly that name; nullptr if there is none.
const DevicePeaks* find_device_peaks(std::string_view name);

/// 2 x memory clock x bus width / 8 (double data rate), GB/s: how a driver's figures give the peak.
double bandwidth_of_clock(double memory_clock_mhz, int bus_width_bits);

/// A warning where the table and the driver's clock x width differ by over 3 % of the table's; nullopt where they
/// agree, and where the driver tells no clock or width (0).
std::optional<std::string> peak_disagreement(const DevicePeaks& peaks, double memory_clock_mhz, int bus_width_bits);

}  // namespace shardscope::topology
