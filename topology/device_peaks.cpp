#include "topology/device_peaks.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace shardscope::topology {
namespace {

constexpr std::string_view kV100 = "NVIDIA V100 data sheet, not yet cross-checked with a driver";
constexpr std::string_view kA100Small =
    "arithmetic: stas00/ml-engineering; memory: NVIDIA A100 data sheet, not yet cross-checked with a driver";
constexpr std::string_view kA100Large =
    "stas00/ml-engineering (memory there 2.00 and 1.94 TB/s); NVIDIA A100 data sheet, not yet cross-checked with a "
    "driver";
constexpr std::string_view kT4 = "NVIDIA T4 data sheet, not yet cross-checked with a driver";
constexpr std::string_view kA100Custom =
    "CINECA's figure for the memory of Leonardo's A100, not yet cross-checked with a driver; none for its arithmetic";
constexpr std::string_view kA10G = "AWS's figures for the A10G (an A10 has more), not yet cross-checked with a driver";
constexpr std::string_view kL4 = "NVIDIA L4 data sheet, not yet cross-checked with a driver";
constexpr std::string_view kMlEngineering = "stas00/ml-engineering";
constexpr std::string_view kH100Nvl =
    "NVIDIA H100 NVL data sheet, one of two GPUs, not yet cross-checked with a driver";
constexpr std::string_view kGh200Large = "stas00/ml-engineering; sheets say 141 or 144 GB and 4800 or 4900 GB/s";
constexpr std::string_view kGb200 =
    "arithmetic: stas00/ml-engineering; memory: NVIDIA GB200 NVL72 data sheet (others say 192 GB), not yet "
    "cross-checked";
constexpr std::string_view kGa102 = "NVIDIA GA102 paper, not yet cross-checked with a driver";
constexpr std::string_view kAd102 = "NVIDIA AD102 paper, not yet cross-checked with a driver";
constexpr std::string_view kGb202 = "NVIDIA GB202 paper, not yet cross-checked with a driver";
constexpr std::string_view kPro6000 =
    "NVIDIA RTX Pro 6000 Blackwell data sheet, not yet cross-checked with a driver; no figure with fp32 accumulation";

constexpr std::nullopt_t kNone = std::nullopt;

constexpr DevicePeaks kTable[] = {
    // name, GB, GB/s, fp16, bf16, int8, fp8
    {"v100-sxm2-16gb", 16, 900, 125, kNone, 63, kNone, kV100},  // int8: dp4a, no tensor cores
    {"v100-sxm2-32gb", 32, 900, 125, kNone, 63, kNone, kV100},
    {"v100-pcie-16gb", 16, 900, 112, kNone, kNone, kNone, kV100},  // its clocks are lower: 63 would be too much
    {"v100-pcie-32gb", 32, 900, 112, kNone, kNone, kNone, kV100},
    {"t4", 16, 320, 65, kNone, 130, kNone, kT4},
    {"a100-40gb", 40, 1555, 312, 312, 624, kNone, kA100Small},  // SXM and PCIe alike
    {"a100-64gb", 64, 1640, kNone, kNone, kNone, kNone, kA100Custom},
    {"a100-80gb-sxm", 80, 2039, 312, 312, 624, kNone, kA100Large},
    {"a100-80gb-pcie", 80, 1935, 312, 312, 624, kNone, kA100Large},
    {"a10g", 24, 600, 70, 70, 140, kNone, kA10G},
    {"l4", 24, 300, 121, 121, 242, 242, kL4},
    {"l40s", 48, 864, 362, 362, 733, 733, kMlEngineering},
    {"h100-pcie", 80, 2039, 756, 756, 1513, 1513, kMlEngineering},
    {"h100-sxm", 80, 3350, 989, 989, 1979, 1979, kMlEngineering},
    {"h100-nvl", 94, 3900, 835, 835, 1671, 1671, kH100Nvl},
    {"h200", 141, 4800, 989, 989, 1979, 1979, kMlEngineering},
    {"gh200-96gb", 96, 4000, 989, 989, 1979, 1979, kMlEngineering},
    {"gh200-144gb", 144, 4900, 989, 989, 1979, 1979, kGh200Large},
    {"b200", 180, 8000, 2250, 2250, 4500, 4500, kMlEngineering},
    {"gb200", 186, 8000, 2500, 2500, 5000, 5000, kGb200},
    {"rtx-3090", 24, 936, 71, 71, 284, kNone, kGa102},
    {"rtx-4090", 24, 1008, 165, 165, 661, 330, kAd102},
    {"rtx-5090", 32, 1792, 210, 210, 838, 419, kGb202},
    {"rtx-pro-6000", 96, 1792, kNone, kNone, kNone, kNone, kPro6000},
};

constexpr double kToleratedPercent = 3;

}  // namespace

std::span<const DevicePeaks> device_peaks() {
  return kTable;
}

const DevicePeaks* find_device_peaks(std::string_view name) {
  const auto row =
      std::find_if(std::begin(kTable), std::end(kTable), [&](const DevicePeaks& peaks) { return peaks.name == name; });
  return row == std::end(kTable) ? nullptr : row;
}

double bandwidth_of_clock(double memory_clock_mhz, int bus_width_bits) {
  return 2 * memory_clock_mhz * bus_width_bits / 8 / 1000;
}

std::optional<std::string> peak_disagreement(const DevicePeaks& peaks, double memory_clock_mhz, int bus_width_bits) {
  if (!(memory_clock_mhz > 0) || bus_width_bits <= 0) return std::nullopt;
  const double of_clock = bandwidth_of_clock(memory_clock_mhz, bus_width_bits);
  if (100 * std::abs(of_clock - peaks.gb_per_s) <= kToleratedPercent * peaks.gb_per_s) return std::nullopt;
  std::ostringstream text;
  text.precision(0);
  text << std::fixed << "memory bandwidth of " << peaks.name << " is " << peaks.gb_per_s
       << " GB/s, but this device's driver says " << memory_clock_mhz << " MHz x " << bus_width_bits
       << " bit = " << of_clock << " GB/s: MBU is against the wrong peak; name the right GPU, or give the peak in GB/s";
  return text.str();
}

}  // namespace shardscope::topology
