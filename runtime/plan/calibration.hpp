// From what was measured (constants.hpp, or the user's own files) to the constants of the cost model, and how wrong the
// model was with them on systems that others measured.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/plan/constants.hpp"
#include "runtime/plan/cost_model.hpp"
#include "topology/device_peaks.hpp"

namespace shardscope::runtime {

/// Whose tables stand for a GPU.
struct GpuLike {
  std::string gpu;
  bool same = false;  // its own, or those of the same chip
  std::string why;    // of another's
};
/// Throws BugError for a GPU that constants.json does not have.
GpuLike table_gpu(const PlanConstants& constants, std::string_view gpu);

/// time = launch_us + bytes / (share x data-sheet bandwidth), by least squares of relative errors.
struct ProductFit {
  double launch_us = 0;
  double share = 0;
  std::vector<double> errors;  // of each point: fitted / measured - 1
};
/// Throws UserError where points of one size only leave the two constants open, or their fit makes no sense.
ProductFit fit_products(const ProductTable& table, double gb_per_s);

/// How far predictions were from what others published, with everything fitted without the system predicted: 90 % of
/// the rows lie within prediction / (1 + e) … prediction x (1 + e).
struct Spread90 {
  double step = 0;   // of TPOT and of MBU
  double whole = 0;  // of TTFT, latency and throughput
};

struct Calibration {
  std::map<std::string, ProductFit> products;  // by GPU that has a table
  double prefill_half_us = 0;
  std::map<std::string, double> overhead_us;  // by family of software, own fits and definitions only
  Spread90 spread;                            // set by calibrated()
};

/// Which published rows and tables a fit may use.
struct LeftOut {
  std::function<bool(const PublishedRow&)> row = [](const PublishedRow&) { return false; };
  std::string products_of;  // a GPU
};

/// Software, model and GPU.
using System = std::array<std::string, 3>;
/// One, or two of a ratio.
std::set<System> systems_of(const PublishedRow& row);

/// To predict rows of these systems from others: every row that touches one of them is left out, on either side of a
/// ratio, and where nothing is fitted to its software, the GPU's own table of products (another GPU's is taken; its
/// table of all-reduces stays).
LeftOut without_systems(const PlanConstants& constants, const std::set<System>& systems);

/// All fits, without the spread. Where nothing of a family is left, its overhead is that of all rows that are.
Calibration fit_constants(const PlanConstants& constants, const LeftOut& left_out = {});

/// Every published row with its prediction from fits without its systems.
std::vector<std::pair<const PublishedRow*, double>> predicted_without_system(const PlanConstants& constants);

/// The spread of the rows that touch none of these systems, by those predictions.
Spread90 spread_without(const std::vector<std::pair<const PublishedRow*, double>>& predictions,
                        const std::set<System>& systems);

/// Those of this program's constants, with the spread; made once.
const Calibration& plan_calibration();

/// The overhead of a family, its own or of the one that stands for it.
double overhead_of(const PlanConstants& constants, const Calibration& calibration, const Software& software);

/// The dense peak of that type of activations. backed: it is the GPU's own; else that of the other type of 16 bits, or
/// of the same chip. nullopt: unknown (fp32 always).
struct DensePeak {
  std::optional<double> tflops;
  bool backed = false;
};
DensePeak dense_peak(const PlanConstants& constants, const topology::DevicePeaks& gpu, kernels::DType activations);

/// What the cost model takes of a GPU and of software.
Reach reach_of(const PlanConstants& constants, const Calibration& calibration, const topology::DevicePeaks& gpu,
               const Software& software, kernels::DType activations = kernels::DType::kF16);

}  // namespace shardscope::runtime
